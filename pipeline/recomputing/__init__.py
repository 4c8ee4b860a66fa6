"""The main job: dumps are read, accounted for in chunks of whole batches, and published."""

from pipeline.recomputing.job import Outcome, recompute
from pipeline.recomputing.plan import RunPlan

__all__ = ["Outcome", "RunPlan", "recompute"]

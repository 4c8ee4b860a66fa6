"""The main job: dumps are read, accounted for in chunks of whole batches, and published."""

from pipeline.recompute.job import Outcome, recompute
from pipeline.recompute.plan import RunPlan

__all__ = ["Outcome", "RunPlan", "recompute"]

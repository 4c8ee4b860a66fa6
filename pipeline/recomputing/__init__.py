"""The main job: dumps are read, accounted for in chunks of whole batches, and published."""

from pipeline.recomputing.job import recompute
from pipeline.recomputing.options import Options, Selection
from pipeline.recomputing.outcome import Outcome
from pipeline.recomputing.plan import RunPlan

__all__ = ["Options", "Outcome", "RunPlan", "Selection", "recompute"]

"""The command's entry: verbs, exit codes, and how errors are told."""

from __future__ import annotations

import signal
import sys
import traceback
from typing import TYPE_CHECKING

from cyclopts import App, CycloptsError

from pipeline import __version__
from pipeline.cli import console, signals
from pipeline.cli.audit import audit
from pipeline.cli.gc import gc
from pipeline.cli.metrics import metrics
from pipeline.cli.recompute import recompute
from pipeline.cli.snapshot import app as snapshot
from pipeline.cli.sql import sql
from pipeline.cli.status import status
from pipeline.errors import Exit, LedgerError

if TYPE_CHECKING:
    from collections.abc import Sequence

app = App(
    name="rollout-ledger",
    help="Recompute rewards and advantages of reinforcement-learning rollouts from their dumps, right, and check them.",
    version=__version__,
    help_format="plaintext",
)
for verb in (recompute, audit, metrics, sql, status, gc):
    app.command(verb)
app.command(snapshot)


def run(arguments: Sequence[str] | None = None) -> int:  # noqa: PLR0911 -- one way out for each exit code
    """Run the command and return its exit code."""
    try:
        result = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        return int(result) if isinstance(result, int) else Exit.DONE
    except CycloptsError as error:
        console.say(f"usage: {error}")
        return Exit.USAGE
    except LedgerError as error:
        console.say(f"error: {error}")
        return error.exit
    except KeyboardInterrupt:
        console.say("interrupted; what was published before stays as it was")
        return Exit.INTERRUPTED
    except signals.Ended as end:
        console.say("ended by a signal; what was published before stays as it was")
        return end.code
    except BrokenPipeError:
        sys.stderr.close()
        return Exit.DONE
    except Exception:  # noqa: BLE001 -- a bug is told as one, with its trace and its own exit code
        console.say(traceback.format_exc())
        console.say("error: a bug of rollout-ledger; what was published before stays as it was")
        return Exit.BUG


def main() -> None:
    """Run the command as a program."""
    signal.signal(signal.SIGTERM, signals.end_at_once)
    sys.exit(run())

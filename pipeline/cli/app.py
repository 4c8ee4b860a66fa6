"""The command's entry: verbs, exit codes, and how errors are told."""

from __future__ import annotations

import signal
import sys
import traceback
from typing import TYPE_CHECKING

from cyclopts import App, CycloptsError

from pipeline import __version__
from pipeline.cli import console, signals
from pipeline.errors import Exit, LedgerError

if TYPE_CHECKING:
    from collections.abc import Sequence

app = App(
    name="rollout-ledger",
    help="Recompute rewards and advantages of reinforcement-learning rollouts from their dumps, right, and check them.",
    version=__version__,
    help_format="plaintext",
)
# Each verb is imported when it is asked for: together they would take longer than all else that `--help` does. What
# is said of one here is its own help, of which it would else be the first line; a test holds the two together.
VERBS = {
    "recompute": "Recompute the reward accounting of dumps and publish it in a ledger; only what is new is done.",
    "audit": "Ask a ledger a named question, or check it. Without a name: list the audits and checks with their "
    "questions.",
    "metrics": "List the metrics: what each is, what is counted once for it, and the key under which trainers log it.",
    "sql": "Ask a ledger one SELECT statement. Nothing can be written with it.",
    "status": "Tell what a ledger holds: runs, steps, when, what is stale or refused, and how large it is.",
    "gc": "Remove older publications and leftovers by hand; `recompute` does the same with its own --keep.\n\n"
    "Kept are the newest publications, those that were replaced too recently for their readers to be done, and every "
    "segment that one of them names.",
    "snapshot": "Keep what a ledger says, and tell whether a number moved, which one, and why.",
}
for verb, text in VERBS.items():
    app.command(f"pipeline.cli.{verb}:{'app' if verb == 'snapshot' else verb}", name=verb, help=text)


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

"""Let another model answer: one that scores as in training and ranks no worse than the live one.

--to is the URL of Ray's dashboard, where a running Serve changes its model without dropping a request, or a Serve
config file, which is changed in place. --back returns to the model before. Replayed queries are lines of
{"query": ..., "documents": [...], "relevance": [...], "first_stage_scores": [...]}, the last two if there are any;
without queries the golden pairs are asked.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.entry import Arguments, parser, run_task
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError, RayrankError

if TYPE_CHECKING:
    from rayrank.bundle.export import Bundle
    from serve.targets import Live, Settings, Target


def run(arguments: Arguments, config: PipelineConfig) -> dict[str, Any]:
    """Check, compare, swap, and return the facts to show; with torch behind it, so imported once it is needed."""
    from rayrank.bundle.export import load
    from serve.promotion import Endpoint, promoted, turned_back
    from serve.targets import open_target

    target = open_target(arguments.to)
    live = target.live()
    if arguments.back:
        settings = turned_back(live)
        # A folder that is gone would cost the live one its replicas.
        load(settings["model"], settings.get("backend", "torch"))
        findings = [f"{settings['model']} is back in place of {live.model}: {target.swap(settings)}"]
        return {"model": settings["model"], "previous": live.model, "findings": findings}
    settings = promoted(live, str(Path(arguments.model).expanduser().absolute()))
    endpoint = Endpoint(arguments.endpoint or live.endpoint)
    exported, checked = _checked(settings)
    compared = _compared(arguments, exported, endpoint, config) if live.model else "no live model to compare with"
    done = target.swap(settings)
    findings = [checked, compared, f"{settings['model']} is in place of {live.model or 'nothing'}: {done}"]
    if "://" in arguments.to:
        findings.append(_confirmed(exported, endpoint, target, live, arguments.force))
    return {"model": settings["model"], "previous": live.model, "findings": findings}


def check(arguments: Arguments) -> None:
    """Refuse options that do not go together."""
    if bool(arguments.model) == arguments.back:
        raise ConfigError("Name the folder with --model DIR, or go back to the one before with --back.")
    if arguments.judgments and not arguments.queries:
        raise ConfigError(f"--judgments {arguments.judgments} judges nothing: name the queries with --queries FILE.")
    if "://" not in arguments.to:
        from serve.targets import open_target

        open_target(arguments.to).live()


def _checked(settings: "Settings") -> tuple["Bundle", str]:
    """Open the folder and refuse one that does not score as training did."""
    from rayrank.bundle.export import load
    from rayrank.bundle.text_scorer import check_golden

    backend = settings.get("backend", "torch")
    exported = load(settings["model"], backend)
    parity = check_golden(exported)
    if objection := parity.objection(exact=exported.int8 is None):
        raise ConfigError(f"--model {settings['model']} is not promoted: {objection}; export it again.")
    return exported, parity.finding()


def _compared(arguments: Arguments, exported: "Bundle", endpoint: Any, config: PipelineConfig) -> str:
    """Ask the live model the same and refuse one that is worse."""
    from rayrank.measure.metrics import Measure
    from serve.promotion import as_shown, difference, golden_replays, new_scores, read_replays

    asked = arguments.queries
    replays = read_replays(asked, arguments.judgments) if asked else golden_replays(exported.golden)
    try:
        answers, weight = [endpoint.scores(replay) for replay in replays], endpoint.first_stage_weight()
    except RayrankError as error:
        if arguments.force:
            return f"not compared: {error}"
        raise
    new_weight = exported.settings.first_stage_weight
    live, new = as_shown(replays, answers, weight), as_shown(replays, new_scores(exported, replays), new_weight)
    found = difference(replays, live, new, config.evaluate, Measure.of(config))
    if (objection := found.objection()) and not arguments.force:
        raise ConfigError(f"--model {arguments.model} is not promoted: {objection}; --force promotes it all the same.")
    if new_weight == weight or any(replay.first_stage_scores for replay in replays):
        return found.finding()
    return (
        f"{found.finding()}; first-stage scores count {new_weight:g} from now on, not {weight:g}, which none of these "
        f"queries had first_stage_scores to show"
    )


def _confirmed(exported: "Bundle", endpoint: Any, target: "Target", live: "Live", force: bool) -> str:
    """Ask the endpoint for the golden scores, and put the old model back if it does not have them."""
    from serve.promotion import endpoint_parity

    try:
        parity = endpoint_parity(endpoint, exported.golden)
        objection = parity.objection(endpoint.is_exact())
    except RayrankError as error:
        if force:
            return f"not confirmed: {error}"
        objection = str(error)
    if not objection:
        return f"the endpoint answers with it: {parity.finding()}"
    target.swap(live.settings)
    raise ConfigError(f"The endpoint does not answer as it should: {objection}; {live.model} is back.")


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--model", metavar="DIR", help="a folder that jobs.export made, as the replicas see it too")
    options.add_argument("--to", required=True, metavar="URL|FILE", help="as in http://127.0.0.1:8265")
    options.add_argument("--endpoint", metavar="URL", help="where the live model answers; found from --to by default")
    options.add_argument("--queries", metavar="FILE", help="JSONL to replay; the golden pairs by default")
    options.add_argument("--judgments", metavar="FILE", help="TREC qrels for queries with query_id and documents' id")
    options.add_argument("--back", action="store_true", help="return to the model before, without comparing")
    options.add_argument("--force", action="store_true", help="promote a model that ranks worse or cannot be compared")
    arguments = options.parse_args()
    run_task(arguments, lambda config, store: run(arguments, config), lambda config: check(arguments))

"""Promote a model: replace the live model by one that scores as in training and does not rank worse.

--to is the URL of Ray's dashboard, where a running Serve changes its model without dropping a request, or a Serve
config file, which is changed in place. Of several models, --replace names the one to replace. --back restores the
previous model. Each line of --queries is {"query": ..., "documents": [...], "relevance": [...], "first_stage_scores":
[...]}, where the last two are optional. A document is a text, or {"text": ..., "fields": {"price": 3}} for a model with
a fusion. Without --queries the two models are compared on the judged dev queries of the new model's folder.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError, RayrankError
from rayrank.jobs.entry import Arguments, parser, run_task

if TYPE_CHECKING:
    from rayrank.bundle.export import Bundle
    from rayrank.serve.targets import LiveModel, Settings, Target


def run(arguments: Arguments, config: PipelineConfig) -> dict[str, Any]:
    """Check the new model, compare it with the live one, replace the live one, and return the findings."""
    # Imported here because it loads torch, and a wrong option is reported without waiting for that.
    from rayrank.serve.live_endpoint import Endpoint
    from rayrank.serve.promotion import as_served, promoted, rolled_back
    from rayrank.serve.targets import open_target

    target = open_target(arguments.to, arguments.replace)
    live = target.live()
    if arguments.back:
        settings = rolled_back(live)
        # Loaded here first: a missing folder would make the replicas fail and take the live model down.
        _opened(settings)
        findings = [f"{settings['model']} is back in place of {live.model}: {target.replace_model(settings)}"]
        return {"model": settings["model"], "previous": live.model, "findings": findings}
    settings = promoted(live, str(Path(arguments.model).expanduser().absolute()))
    endpoint = Endpoint(arguments.endpoint or live.endpoint, live.served_as)
    exported, checked = _checked(settings)
    served = as_served(exported, settings.get("long_documents"))
    compared = _compared(arguments, served, endpoint, config) if live.model else "no live model to compare with"
    done = target.replace_model(settings)
    findings = [checked, compared, f"{settings['model']} is in place of {live.model or 'nothing'}: {done}"]
    if "://" in arguments.to:
        findings.append(_confirmed(exported, endpoint, target, live, arguments.force))
    return {"model": settings["model"], "previous": live.model, "findings": findings}


def check(arguments: Arguments) -> None:
    """Refuse options that cannot be used together, and a Serve config file that names no model."""
    if bool(arguments.model) == arguments.back:
        raise ConfigError("Name the new model with --model DIR, or restore the previous one with --back.")
    if arguments.judgments and not arguments.queries:
        raise ConfigError(f"--judgments {arguments.judgments} needs queries: name them with --queries FILE.")
    if "://" not in arguments.to:
        from rayrank.serve.targets import open_target

        open_target(arguments.to, arguments.replace).live()


def _opened(settings: "Settings") -> "Bundle":
    """Load a model, and refuse it where its replicas would."""
    from rayrank.bundle.export import load_for_serving

    return load_for_serving(settings["model"], settings.get("backend", "torch"))


def _checked(settings: "Settings") -> tuple["Bundle", str]:
    """Load the new model, and refuse it if its scores of golden pairs differ from those of training."""
    from rayrank.bundle.text_scorer import check_golden

    exported = _opened(settings)
    parity = check_golden(exported)
    if objection := parity.objection(exact=exported.int8 is None):
        raise ConfigError(f"--model {settings['model']} is not promoted: {objection}; export it again.")
    return exported, parity.finding()


def _compared(arguments: Arguments, exported: "Bundle", endpoint: Any, config: PipelineConfig) -> str:
    """Compare the new model with the live one on replayed queries, and refuse it if it is worse."""
    from rayrank.serve.promotion import difference, new_scores, not_fused, served_scores
    from rayrank.serve.replays import dev_replays, read_replays

    asked = arguments.queries
    replays = read_replays(asked, arguments.judgments) if asked else dev_replays(exported.dev)
    if not replays:
        if arguments.force:
            return "not compared: the model's folder has no judged dev queries"
        raise ConfigError(
            f"--model {arguments.model} is not promoted: its folder has no judged dev queries to compare it on; name "
            f"some with --queries, export it again, or promote it all the same with --force."
        )
    try:
        answers, weight = [endpoint.scores(replay) for replay in replays], endpoint.first_stage_weight()
        live_fuses = endpoint.has_fusion()
    except RayrankError as error:
        if arguments.force:
            return f"not compared: {error}"
        raise
    new_weight, scores = exported.settings.first_stage_weight, new_scores(exported, replays)
    live, new = served_scores(replays, answers, weight), served_scores(replays, scores, new_weight)
    found = difference(replays, live, new, config.evaluate, exported.settings.measure)
    if (objection := found.objection()) and not arguments.force:
        raise ConfigError(f"--model {arguments.model} is not promoted: {objection}; --force promotes it all the same.")
    findings = [found.finding(), *(not_fused("live", answers) if live_fuses else ())]
    findings += not_fused("new", scores) if exported.fusion and exported.fusion.model else ()
    if new_weight != weight and not any(replay.first_stage_scores for replay in replays):
        findings.append(
            f"the weight of first-stage scores changes from {weight:g} to {new_weight:g}, which this comparison does "
            f"not show: no query has first_stage_scores"
        )
    return "; ".join(findings)


def _confirmed(exported: "Bundle", endpoint: Any, target: "Target", live: "LiveModel", force: bool) -> str:
    """Check the golden scores of the endpoint after the promotion, and restore the old model if they differ."""
    from rayrank.serve.promotion import endpoint_parity, expected_pairs

    try:
        parity = endpoint_parity(endpoint, expected_pairs(exported, live.settings.get("long_documents")))
        objection = parity.objection(endpoint.is_exact())
    except RayrankError as error:
        if force:
            return f"not confirmed: {error}"
        objection = str(error)
    if not objection:
        return f"the endpoint serves it: {parity.finding()}"
    target.replace_model(live.settings)
    raise ConfigError(f"The endpoint does not serve the new model correctly: {objection}; {live.model} was restored.")


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument(
        "--model", metavar="DIR", help="a folder written by `rayrank export` that the replicas can read"
    )
    options.add_argument("--to", required=True, metavar="URL|FILE", help="as in http://127.0.0.1:8265 or serve.yaml")
    options.add_argument(
        "--replace", default="", metavar="NAME", help="the model to replace, if the endpoint has several"
    )
    options.add_argument("--endpoint", metavar="URL", help="URL of the live endpoint; found from --to by default")
    options.add_argument(
        "--queries", metavar="FILE", help="JSONL to replay; the dev queries of the new model's folder by default"
    )
    options.add_argument("--judgments", metavar="FILE", help="TREC qrels for queries with query_id and documents' id")
    options.add_argument("--back", action="store_true", help="restore the previous model without a comparison")
    options.add_argument("--force", action="store_true", help="promote a model that ranks worse or cannot be compared")
    arguments = options.parse_args()
    run_task(arguments, lambda config, store: run(arguments, config), lambda config: check(arguments))

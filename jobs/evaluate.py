"""Measure a run on a split, with 95 % intervals, and beside a baseline if one is named."""

from jobs.entry import assignment, parser, run_job

if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--run", help="bm25, or a TREC run file")
    options.add_argument("--baseline", help="a run to compare with, named the same way")
    options.add_argument("--split", help="test where the dataset has one, else dev")
    arguments = options.parse_args()
    chosen = {f"evaluate.{name}": getattr(arguments, name) for name in ("run", "baseline", "split")}
    run_job(arguments, ["evaluate"], [assignment(key, name) for key, name in chosen.items() if name is not None])

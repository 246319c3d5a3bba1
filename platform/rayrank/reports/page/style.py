"""The style sheets of a report and of its charts: light, dark, and printed in the light colours."""

from rayrank.reports.palette import AMBER, BLUE, GREEN, ORANGE, PURPLE, SKY

_LIGHT = (BLUE, ORANGE, GREEN, PURPLE, AMBER, SKY)
_DARK = (SKY, "#FF8A3D", "#2BC79A", "#E39CC4", "#F0C24B", "#8FB8FF")
"""Lighter variants of the same hues, in the same order."""


def _variables(colours: tuple[str, ...], ink: str, muted: str, line: str, paper: str, band: str) -> str:
    series = "".join(f"--c{number}:{colour};" for number, colour in enumerate(colours))
    return f"{series}--ink:{ink};--muted:{muted};--line:{line};--paper:{paper};--band:{band};"


_SERIES = "".join(f".s{number}{{stroke:var(--c{number})}}.f{number}{{fill:var(--c{number})}}" for number in range(6))
_DASHES = ".s1{stroke-dasharray:7 3}.s2{stroke-dasharray:2 3}.s3{stroke-dasharray:9 3 2 3}.s4{stroke-dasharray:4 2}"

CHART_STYLE = (
    f":root{{{_variables(_LIGHT, '#1F2328', '#57606A', '#E1E4E8', '#FFFFFF', '#D9E8F2')}}}"
    f"@media screen and (prefers-color-scheme:dark)"
    f"{{:root{{{_variables(_DARK, '#E6EDF3', '#A0A9B4', '#30363D', '#14181D', '#1F3347')}}}}}"
    "svg{font:12px system-ui,sans-serif;background:var(--paper)}svg text{fill:var(--ink)}"
    "svg text.muted{fill:var(--muted)}"
    "svg path{fill:none;stroke-width:1.8}.grid,.axis,.rule{stroke:var(--line)}svg .grid{stroke-width:1}"
    ".axis{stroke:var(--muted)}svg .axis{stroke-width:1.2}.rule{stroke:var(--muted);stroke-dasharray:5 4}"
    "svg .rule{stroke-width:1.2}.band{fill:var(--band)}.f6{fill:var(--line)}"
    f"{_SERIES}{_DASHES}"
    "svg path.f0{fill:var(--c0)}svg path.f1{fill:var(--c1)}svg path.f2{fill:var(--c2)}svg path.f3{fill:var(--c3)}"
    "svg path.f4{fill:var(--c4)}svg path.f5{fill:var(--c5)}"
    "svg path.open{fill:var(--paper)}svg path.open,svg path.whole{stroke-dasharray:none}"
)

PAGE_STYLE = """
*{box-sizing:border-box}
body{font:16px/1.55 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:0 auto;max-width:68rem;
padding:1.5rem 1rem 4rem}
h1{font-size:1.9rem;line-height:1.2;margin:.2em 0}
h2{margin:2.6rem 0 .6rem;padding-top:.6rem;border-top:1px solid var(--line)}
h3{margin:1.6rem 0 .4rem;font-size:1.05rem}header p{color:var(--muted);margin:.2em 0}
nav{display:flex;flex-wrap:wrap;gap:.3rem 1.1rem;padding:.8rem 0}a{color:var(--c0)}
.big{display:flex;flex-wrap:wrap;gap:1rem;margin:1rem 0}
.big div{flex:1 1 9rem;border:1px solid var(--line);border-radius:8px;padding:.7rem .9rem}
.big b{display:block;font-size:1.6rem;line-height:1.25}
.big span{color:var(--muted);font-size:.85rem}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:1rem 2rem;margin:1rem 0}
figure{margin:0;max-width:34rem;break-inside:avoid}figure svg{display:block;width:100%;height:auto}
figcaption{color:var(--muted);font-size:.85rem;margin-top:.3rem}
button{font:inherit;font-size:.75rem;color:var(--c0);background:none;border:1px solid var(--line);border-radius:4px;
padding:0 .4em;cursor:pointer}
.wide{overflow-x:auto;margin:.8rem 0}table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums}
th,td{padding:.28rem .7rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--muted);font-weight:600}th.name,td.name{text-align:left}
th.long,td.long{white-space:normal;min-width:14rem;text-align:left}
code{font-size:.85em;background:var(--band);padding:.1em .3em;border-radius:4px;overflow-wrap:anywhere}
pre{background:var(--band);padding:.7rem .9rem;border-radius:8px;white-space:pre-wrap;
overflow-wrap:anywhere;font-size:.85rem}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem}
.card{border:1px solid var(--line);border-radius:8px;padding:.7rem .9rem;font-size:.88rem;
break-inside:avoid;overflow-wrap:anywhere}
.card h4{margin:0 0 .3rem;font-size:1rem}.card ol{margin:.2rem 0 .5rem;padding-left:1.4rem}.card p{margin:.2rem 0}
.card .muted{color:var(--muted)}
mark{background:var(--band);color:inherit;border-left:3px solid var(--c2);padding:0 .3em}
details summary{cursor:pointer;margin:.6rem 0;color:var(--c0)}
@media print{body{max-width:none;font-size:10.5pt;padding:0}nav,button{display:none}.wide{overflow:visible}
th,td{white-space:normal}}
"""

SAVE_SCRIPT = """
for (const button of document.querySelectorAll("button[data-name]")) button.onclick = () => {
  const drawing = button.closest("figure").querySelector("svg").cloneNode(true)
  drawing.prepend(document.getElementById("chart-style").cloneNode(true))
  const link = document.createElement("a")
  link.href = URL.createObjectURL(new Blob([drawing.outerHTML], {type: "image/svg+xml"}))
  link.download = button.dataset.name
  link.click()
}
"""

// What the server says about its model: the line below the title, and how sure the model is at which threshold.

const by = (id) => document.getElementById(id);

export function describe(info) {
  const strm = info.strm === "off" ? "plain attention" : "STRM";
  by("model").textContent = `${info.model_id} · ${strm} · up to ${info.max_input_length} word pieces`;
  describeModels(info);
  by("docs").hidden = !info.docs;
  by("sources").hidden = !info.search;
  by("types").hidden = !info.query_types.length;
  by("query-type").length = 1;
  info.query_types.forEach((type) => by("query-type").add(new Option(type)));
  describePrecision(info.precision);
}

// A choice, if the server has several models.
function describeModels({ models, model_id }) {
  by("models").hidden = models.length === 1;
  by("served").replaceChildren(...models.map((name) => new Option(name, name, false, name === model_id)));
}

function describePrecision(table) {
  by("about").hidden = !table;
  const given = (table?.levels ?? []).filter(({ logit }) => logit !== null);
  by("precisions").hidden = !given.length;
  by("min-precision").length = 1;
  given.forEach(({ wanted }) =>
    by("min-precision").add(new Option(`passages above the threshold for ${percent(wanted, 0)} precision`, wanted)));
  if (!table) return;
  by("about").querySelector(".num-queries").textContent = table.num_queries.toLocaleString("en");
  by("about").querySelector("tbody").replaceChildren(...table.levels.map((level) => row(level, table)));
}

function row(level, { num_queries }) {
  const line = document.createElement("tr");
  const cells = level.logit === null
    ? [percent(level.wanted, 0), level.reason]
    : [
        percent(level.wanted, 0), percent(level.probability, 1),
        `${level.num_queries.toLocaleString("en")} (${percent(level.num_queries / num_queries, 0)})`,
        `${percent(level.precision, 1)} (${percent(level.low, 1)} to ${percent(level.high, 1)})`,
      ];
  cells.forEach((text) => { line.insertCell().textContent = text; });
  if (cells.length === 2) line.lastChild.colSpan = 3;
  return line;
}

function percent(share, digits) {
  return `${(100 * share).toFixed(digits)} %`;
}

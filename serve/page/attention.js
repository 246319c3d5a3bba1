// The attention weights as two grids, with and without STRM: passage words as rows, query words as columns.

import { walk } from "./words.js";

const FORMS = [["with_strm", "with STRM"], ["without_strm", "without STRM"]];
const ALL = "all";

export function showAttention(section, why) {
  const layers = why.attention.with_strm.weights;
  const [layer, head] = ["layer", "head"].map((name) => section.querySelector(`.${name}`));
  choices(layer, "mean of all", layers.length);
  choices(head, "mean of all", layers[0].length);
  const draw = () => show(section, why, layer.value, head.value);
  layer.addEventListener("change", draw);
  head.addEventListener("change", draw);
  const left = why.attention.left_out;
  section.querySelector(".note").textContent = left ? `The last ${left} words of the passage are left out.` : "";
  draw();
}

function choices(select, all, count) {
  select.add(new Option(all, ALL));
  for (let each = 0; each < count; each++) select.add(new Option(`${each + 1}`, each));
}

function show(section, why, layer, head) {
  const rows = why.attention.document_words.map((number) => why.words[number].text);
  const columns = why.attention.query_words.map((number) => why.words[number].text);
  const values = FORMS.map(([form]) => mean(why.attention[form].weights, layer, head, columns.length, rows.length));
  const most = Math.max(...values.flat(2), 1e-6);
  const { table, cells } = grid(rows, columns);
  const width = FORMS.length * columns.length;
  const reading = section.querySelector(".reading");
  cells.forEach((cell, place) => {
    const [row, column] = [Math.floor(place / width), place % width];
    const weight = values[Math.floor(column / columns.length)][column % columns.length][row];
    cell.style.setProperty("--weight", (weight / most).toFixed(3));
    const form = FORMS[Math.floor(column / columns.length)][1];
    cell.ariaLabel = `“${columns[column % columns.length]}” gives “${rows[row]}” ${percent(weight)} of its attention, ${form}.`;
  });
  walk(cells, width, (place) => { reading.textContent = cells[place].ariaLabel; });
  section.querySelector(".frame").replaceChildren(table);
  sayWhatIsHidden(section, rows.length);
  section.querySelector(".most").textContent = percent(most);
}

// The picture scrolls in its frame; a line below says so, and a button shows all of it.
function sayWhatIsHidden(section, numRows) {
  const [frame, more] = [".frame", ".more"].map((name) => section.querySelector(name));
  const [tall, wide] = [frame.scrollHeight > frame.clientHeight + 1, frame.scrollWidth > frame.clientWidth + 1];
  more.hidden = !tall && !wide;
  more.querySelector("button").hidden = !tall;
  more.querySelector("button").onclick = () => {
    frame.classList.add("whole");
    sayWhatIsHidden(section, numRows);
  };
  // The lower edge fades out until the last row is in sight.
  frame.onscroll = () => {
    frame.classList.toggle("continues", frame.scrollTop + frame.clientHeight < frame.scrollHeight - 1);
  };
  frame.onscroll();
  more.firstElementChild.textContent = [
    tall && `The picture has ${numRows} rows and goes on below: scroll in it.`, wide && "Scroll sideways for more words of the query.",
  ].filter(Boolean).join(" ");
}

// Returns one matrix of query words by passage words: that of a layer and head, or the mean over all of them.
function mean(weights, layer, head, columns, rows) {
  const layers = layer === ALL ? weights : [weights[layer]];
  const matrices = layers.flatMap((heads) => (head === ALL ? heads : [heads[head]]));
  return Array.from({ length: columns }, (_, column) =>
    Array.from({ length: rows }, (_, row) =>
      matrices.reduce((sum, matrix) => sum + matrix[column][row], 0) / matrices.length));
}

function grid(rows, columns) {
  const table = document.createElement("table");
  table.setAttribute("role", "grid");
  table.ariaLabel = "Attention from words of the query to words of the passage";
  const [forms, heads, body] = [table.createTHead().insertRow(), table.tHead.insertRow(), table.createTBody()];
  forms.append(gap());
  heads.append(gap());
  for (const [place, [, form]] of FORMS.entries()) {
    const title = header(form, "colgroup");
    title.colSpan = columns.length;
    forms.append(...(place ? [gap()] : []), title);
    heads.append(...(place ? [gap()] : []), ...columns.map((word) => header(word, "col")));
  }
  const cells = [];
  for (const word of rows) {
    const row = body.insertRow();
    row.append(header(word, "row"));
    for (const place of FORMS.keys()) {
      if (place) row.append(gap());
      for (const _ of columns) cells.push(row.appendChild(field()));
    }
  }
  return { table, cells };
}

function field() {
  const cell = document.createElement("td");
  cell.setAttribute("role", "gridcell");
  cell.className = "weight";
  return cell;
}

function header(text, scope) {
  const cell = document.createElement("th");
  cell.scope = scope;
  const label = document.createElement("span");
  label.textContent = text;
  cell.append(label);
  return cell;
}

function gap() {
  const cell = document.createElement("td");
  cell.setAttribute("role", "presentation");
  cell.className = "gap";
  return cell;
}

function percent(weight) {
  return `${(100 * weight).toFixed(weight < 0.1 ? 2 : 1)} %`;
}

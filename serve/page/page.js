// The page: ask, show the passages as they came, and let them move to where the model puts them.

import { example } from "./example.js";
import { Problem, get, key, post } from "./server.js";
import { fill, number } from "./why.js";
import { explained, matched } from "./words.js";

const AHEAD = 10; // explanations fetched before anybody asks, for the words of several pieces
const SLOW_MS = 1500; // a server that takes longer for one is not asked for more than it is told to

const by = (id) => document.getElementById(id);
const form = by("ask");
const list = by("passages-ranked");
let running = new AbortController();
let firstStageWeight = 0; // beside the model, for passages from the index

start();

async function start() {
  form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  form.addEventListener("change", sources);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
  });
  by("example").addEventListener("click", () => {
    form.elements.query.value = example.query;
    form.elements.passages.value = example.passages.join("\n\n");
    form.elements.source.value = "paste";
    sources();
    ask();
  });
  await describe();
}

function sources() {
  const search = form.elements.source.value === "search";
  by("paste").hidden = search;
  by("retrieve").hidden = !search;
}

// What the server can do; without an answer the page still shows how to ask.
async function describe() {
  try {
    const info = await get("info");
    firstStageWeight = info.first_stage_weight;
    const strm = info.strm === "off" ? "plain attention" : "STRM";
    by("model").textContent = `${info.model_id} · ${strm} · reads ${info.max_input_length} word pieces`;
    by("sources").hidden = !info.search;
    by("types").hidden = !info.query_types.length;
    by("query-type").length = 1;
    info.query_types.forEach((type) => by("query-type").add(new Option(type)));
  } catch (error) {
    complain(error);
  }
}

async function ask() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  if (!by("key").hidden) key.set(form.elements["api-key"].value.trim());
  quiet();
  try {
    const question = wanted();
    by("status").textContent = "Scoring …";
    list.setAttribute("aria-busy", "true");
    const found = await ranked(question, signal);
    if (!by("key").hidden && by("query-type").length === 1) describe();
    show(question, found, signal);
  } catch (error) {
    if (error.name === "AbortError") return;
    by("status").textContent = "";
    complain(error);
  } finally {
    list.removeAttribute("aria-busy");
  }
}

// What is asked, or a sentence about what is missing.
function wanted() {
  const query = form.elements.query.value.trim();
  if (!query) throw missing("query", "There is no query yet. Type what you look for.");
  const query_type = form.elements["query-type"].value || undefined;
  if (form.elements.source.value === "search") {
    const depth = Number(form.elements.depth.value);
    if (!Number.isInteger(depth) || depth < 1) throw missing("depth", "How many passages to retrieve has to be 1 or more.");
    return { query, query_type, depth };
  }
  const documents = form.elements.passages.value.split(/\n\s*\n/).map((text) => text.trim()).filter(Boolean);
  if (!documents.length) throw missing("passages", "There are no passages yet. Paste some, with an empty line between two.");
  return { query, query_type, documents };
}

function missing(field, message) {
  form.elements[field].setAttribute("aria-invalid", "true");
  form.elements[field].focus();
  return new Problem(message);
}

// Passages in the order they came in, each with its two scores, and the order they are put in.
async function ranked({ query, query_type, documents, depth }, signal) {
  let passages = documents?.map((text) => ({ text }));
  if (depth) {
    const found = await post("search", { query, query_type, depth }, signal);
    passages = found.results.sort((one, other) => one.first_stage_rank - other.first_stage_rank);
    if (!passages.length) throw new Problem("The index has no passage with any of these words. Try other words.");
  }
  const request = {
    query, query_type, return_documents: false, documents: passages.map(({ text }) => text),
    first_stage_scores: depth ? passages.map(({ first_stage_score }) => first_stage_score) : undefined,
  };
  const [chances, logits] = await Promise.all(
    [false, true].map((raw_scores) => post("v1/rerank", { ...request, raw_scores }, signal)));
  for (const { index, relevance_score } of chances.results) passages[index].chance = relevance_score;
  for (const { index, relevance_score } of logits.results) passages[index].logit = relevance_score;
  const order = logits.results.map(({ index }) => index);
  const weight = depth ? firstStageWeight : 0;
  return { passages, order, weight, type: chances.query_type, warnings: chances.meta.warnings ?? [] };
}

function show(question, { passages, order, weight, type, warnings }, signal) {
  const places = new Map(order.map((index, place) => [index, place]));
  const cards = passages.map((passage, index) => card(question, passage, index, places.get(index), type));
  list.replaceChildren(...cards.map(({ element }) => element));
  by("results").hidden = false;
  const best = order.map((index) => cards[index]);
  move(cards, () => list.replaceChildren(...best.map(({ element }) => element)));
  const moved = order.filter((index, place) => index !== place).length;
  by("status").textContent = [
    `${order.length} passages scored, ${moved} of them in another place than before.`,
    weight && `The first stage counts ${weight}, the model the rest.`,
    type && `The query asks for: ${type}.`,
    ...warnings,
  ].filter(Boolean).join(" ");
  by("results-title").focus({ preventScroll: true });
  by("results").scrollIntoView({ block: "start", behavior: still() ? "auto" : "smooth" });
  ahead(best.slice(0, AHEAD), signal);
}

function card(question, passage, before, place, type) {
  const element = by("card").content.firstElementChild.cloneNode(true);
  const part = (name) => element.querySelector(`.${name}`);
  const up = before - place;
  part("rank").textContent = place + 1;
  part("moved").textContent = up ? `${up > 0 ? "▲" : "▼"} ${Math.abs(up)}` : "=";
  part("moved").classList.add(up > 0 ? "up" : up < 0 ? "down" : "same");
  part("moved").ariaLabel = up ? `${up > 0 ? "up" : "down"} ${Math.abs(up)}, from place ${before + 1}` : "where it was";
  part("moved").setAttribute("role", "img");
  part("moved").title = part("moved").ariaLabel;
  part("bar").firstElementChild.style.setProperty("--share", passage.chance);
  part("percent").textContent = `${(100 * passage.chance).toFixed(1)} %`;
  part("logit").textContent = `logit ${number(passage.logit)}`;
  part("first").textContent = passage.first_stage_score === undefined
    ? "" : `first stage ${number(passage.first_stage_score)}`;
  part("text").append(matched(passage.text, question.query));
  let fetched;
  // Asked for once, whoever asks first; what failed may be asked for again.
  const why = (signal) => (fetched ??= reasons(question, passage, type, part("text"), signal).catch((error) => {
    fetched = undefined;
    throw error;
  }));
  part("explain").addEventListener("click", () => toggle(part("explain"), part("why"), why));
  part("explain").setAttribute("aria-label", `Explain passage ${place + 1}`);
  return { element, why };
}

async function reasons({ query }, { text }, query_type, place, signal) {
  const why = await post("explain", { query, document: text, query_type }, signal);
  place.replaceChildren(explained(text, why));
  return why;
}

async function toggle(button, panel, why) {
  const opens = panel.hidden;
  button.setAttribute("aria-expanded", String(opens));
  panel.hidden = !opens;
  if (!opens || panel.querySelector(".facts")) return;
  panel.textContent = "Asking the model …";
  try {
    fill(panel, await why(running.signal));
  } catch (error) {
    if (error.name === "AbortError") return;
    panel.hidden = true;
    button.setAttribute("aria-expanded", "false");
    complain(error);
  }
}

// Marks words of several pieces before anybody asks, one passage after another, while the server is quick.
async function ahead(cards, signal) {
  for (const { why } of cards) {
    const began = performance.now();
    try {
      await why(signal);
    } catch {
      return;
    }
    if (signal.aborted || document.hidden || performance.now() - began > SLOW_MS) return;
  }
}

// Lets every card glide from where it was to where it is.
function move(cards, reorder) {
  const tops = cards.map(({ element }) => element.getBoundingClientRect().top);
  reorder();
  if (still()) return;
  cards.forEach(({ element }, index) => {
    const way = tops[index] - element.getBoundingClientRect().top;
    if (!way) return;
    const from = { transform: `translateY(${way}px)` };
    element.animate([from, { ...from, offset: 0.25 }, { transform: "none" }], { duration: 1100, easing: "ease-in-out" });
  });
}

function still() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

function quiet() {
  by("problem").hidden = true;
  form.querySelectorAll("[aria-invalid]").forEach((field) => field.removeAttribute("aria-invalid"));
}

function complain(error) {
  const known = error instanceof Problem;
  by("problem").textContent = known ? error.message : "This page has a fault. Load it again, and tell who runs the server.";
  by("problem").hidden = false;
  if (!known) console.error(error);
  if (error.needsKey) {
    by("key").hidden = false;
    form.elements["api-key"].focus();
  }
}

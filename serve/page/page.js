// The page: sends the request, shows the passages in their old order, and moves them to their new one.

import { describe } from "./about.js";
import { example } from "./example.js";
import { Problem, get, key, post } from "./server.js";
import { fill, number } from "./why.js";
import { explained, matched, rarity } from "./words.js";

const PREFETCHED = 10; // explanations fetched in advance, to mark words of several pieces
const SLOW_MS = 1500; // prefetching stops if an explanation takes longer

const by = (id) => document.getElementById(id);
const form = by("ask");
const list = by("passages-ranked");
let running = new AbortController();
let firstStageWeight = 0; // of first-stage scores, for passages from the index
let canExplain = true;

start();

async function start() {
  form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  form.addEventListener("change", showSource);
  form.elements.served.addEventListener("change", describeModel);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
  });
  form.elements.passages.addEventListener("input", countPassages);
  by("split-lines").addEventListener("click", () => {
    form.elements.passages.value = lines().join("\n\n");
    countPassages();
    form.elements.passages.focus();
  });
  by("example").addEventListener("click", () => {
    form.elements.query.value = example.query;
    form.elements.passages.value = example.passages.join("\n\n");
    form.elements.source.value = "paste";
    countPassages();
    showSource();
    ask();
  });
  countPassages(); // a reload keeps the text
  await describeModel();
}

function pasted() {
  return form.elements.passages.value.split(/\n\s*\n/).map((text) => text.trim()).filter(Boolean);
}

function lines() {
  return form.elements.passages.value.split("\n").map((text) => text.trim()).filter(Boolean);
}

// Says how many passages the text is, and that lines without an empty line between them are one.
function countPassages() {
  const [count, num] = [pasted().length, lines().length];
  const joined = count === 1 && num > 1;
  by("count").textContent = joined
    ? `These ${num} lines are one passage, because no empty line separates them.`
    : count ? plural(count, "passage") : "";
  by("split-lines").hidden = !joined;
}

function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

function showSource() {
  const search = form.elements.source.value === "search";
  by("paste").hidden = search;
  by("retrieve").hidden = !search;
}

// Shows the model and its query types; the form stays usable if the server does not answer.
async function describeModel() {
  try {
    const model = form.elements.served.value;
    const info = await get(model ? `info?model=${encodeURIComponent(model)}` : "info");
    firstStageWeight = info.first_stage_weight;
    canExplain = info.explain;
    describe(info);
  } catch (error) {
    showProblem(error);
  }
}

async function ask() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  if (!by("key").hidden) key.set(form.elements["api-key"].value.trim());
  clearProblem();
  try {
    const request = readForm();
    by("status").textContent = "Scoring …";
    list.setAttribute("aria-busy", "true");
    const found = await rerank(request, signal);
    if (!by("key").hidden && by("query-type").length === 1) await describeModel();
    show(request, found, signal);
  } catch (error) {
    if (error.name === "AbortError") return;
    by("status").textContent = "";
    showProblem(error);
  } finally {
    list.removeAttribute("aria-busy");
  }
}

// Returns the request, or throws a sentence about a missing field.
function readForm() {
  const query = form.elements.query.value.trim();
  if (!query) throw missing("query", "The query is empty. Type a question or some keywords.");
  const model = form.elements.served.value || undefined;
  const query_type = form.elements["query-type"].value || undefined;
  const min_precision = Number(form.elements["min-precision"].value) || undefined;
  if (form.elements.source.value === "search") {
    const depth = Number(form.elements.depth.value);
    if (!Number.isInteger(depth) || depth < 1) throw missing("depth", "The number of passages to retrieve must be 1 or more.");
    return { model, query, query_type, min_precision, depth };
  }
  const documents = pasted();
  if (!documents.length) throw missing("passages", "There are no passages. Paste some, separated by empty lines.");
  return { model, query, query_type, min_precision, documents };
}

function missing(field, message) {
  form.elements[field].setAttribute("aria-invalid", "true");
  form.elements[field].focus();
  return new Problem(message);
}

// Returns the passages in their old order, each with its probability and its logit, and their new order.
async function rerank({ model, query, query_type, min_precision, documents, depth }, signal) {
  let passages = documents?.map((text) => ({ text }));
  if (depth) {
    const found = await post("search", { model, query, query_type, depth }, signal);
    passages = found.results.sort((one, other) => one.first_stage_rank - other.first_stage_rank);
    if (!passages.length) throw new Problem("The index has no passage with any of these words. Try other words.");
  }
  const request = {
    model, query, query_type, min_precision, return_documents: false, documents: passages.map(({ text }) => text),
    first_stage_scores: depth ? passages.map(({ first_stage_score }) => first_stage_score) : undefined,
  };
  const [probabilities, logits] = await Promise.all(
    [false, true].map((raw_scores) => post("v1/rerank", { ...request, raw_scores }, signal)));
  for (const { index, relevance_score } of probabilities.results) passages[index].probability = relevance_score;
  for (const { index, relevance_score } of logits.results) passages[index].logit = relevance_score;
  const order = logits.results.map(({ index }) => index);
  const { ranked_by, warnings = [] } = probabilities.meta;
  const weight = depth && !ranked_by ? firstStageWeight : 0; // a fusion has weights of its own
  return { passages, order, weight, isFused: Boolean(ranked_by), type: probabilities.query_type, warnings };
}

function show(request, { passages, order, weight, isFused, type, warnings }, signal) {
  const places = new Map(order.map((index, place) => [index, place]));
  const weights = rarity(request.query, passages.map(({ text }) => text));
  for (const index of unreadEnds(warnings)) passages[index].isCut = true;
  // Passages that the server left out have no card.
  const shown = [...order].sort((one, other) => one - other);
  const cards = shown.map((index) => card({ ...request, weights }, passages[index], index, places.get(index), type));
  list.replaceChildren(...cards.map(({ element }) => element));
  by("results").hidden = !order.length;
  const best = order.map((index) => cards[shown.indexOf(index)]);
  move(cards, () => list.replaceChildren(...best.map(({ element }) => element)));
  const moved = order.filter((index, place) => index !== place).length;
  const left = passages.length - order.length;
  const facts = [
    `${plural(passages.length, "passage")} scored, ${left ? `${left} left out, ` : ""}${moved} moved.`,
    isFused && "The order is by fused scores, which join the scores of the model and of the first stage.",
    weight && `The first stage has a weight of ${weight}, the model ${Number((1 - weight).toFixed(4))}.`,
    type && `Query type: ${type}.`,
  ].filter(Boolean).join(" ");
  by("status").replaceChildren(paragraph(facts), ...warnings.map((warning) => paragraph(inPageWords(warning), "warning")));
  by("results-title").focus({ preventScroll: true });
  by("status").scrollIntoView({ block: "start", behavior: prefersReducedMotion() ? "auto" : "smooth" });
  if (canExplain) prefetch(best.slice(0, PREFETCHED), signal);
}

function paragraph(text, name = "") {
  const element = document.createElement("p");
  element.textContent = text;
  element.className = name;
  return element;
}

// The server counts documents from 0, as its results do; the page counts passages from 1.
const POSITIONS = /^documents ([\d, ]*\d)/;

function inPageWords(warning) {
  return warning.replace(POSITIONS, (_, places) => {
    const numbers = places.split(", ").map((place) => Number(place) + 1);
    return `${numbers.length === 1 ? "Passage" : "Passages"} ${numbers.join(", ")}`;
  });
}

function unreadEnds(warnings) {
  return warnings.flatMap((warning) => warning.match(POSITIONS)?.[1].split(", ").map(Number) ?? []);
}

function card(request, passage, before, place, type) {
  const element = by("card").content.firstElementChild.cloneNode(true);
  const part = (name) => element.querySelector(`.${name}`);
  const up = before - place;
  part("rank").textContent = place + 1;
  part("moved").textContent = up ? `${up > 0 ? "▲" : "▼"} ${Math.abs(up)}` : "=";
  part("moved").classList.add(up > 0 ? "up" : up < 0 ? "down" : "same");
  part("moved").ariaLabel = up ? `${up > 0 ? "up" : "down"} ${Math.abs(up)}, from rank ${before + 1}` : "same rank as before";
  part("moved").setAttribute("role", "img");
  part("moved").title = part("moved").ariaLabel;
  part("bar").firstElementChild.style.setProperty("--share", passage.probability);
  part("percent").textContent = `${(100 * passage.probability).toFixed(1)} %`;
  part("logit").textContent = `logit ${number(passage.logit)}`;
  part("first").textContent = passage.first_stage_score === undefined
    ? "" : `first stage ${number(passage.first_stage_score)}`;
  part("unread-end").hidden = !passage.isCut;
  part("text").append(matched(passage.text, request.weights));
  let fetched;
  // Fetched once, by prefetching or by a click; fetched again after a failure.
  const why = (signal) => (fetched ??= fetchExplanation(request, passage, type, part("text"), signal).catch((error) => {
    fetched = undefined;
    throw error;
  }));
  part("explain").hidden = !canExplain;
  part("explain").addEventListener("click", () => toggle(part("explain"), part("why"), why));
  part("explain").setAttribute("aria-label", `Explain passage ${place + 1}`);
  return { element, why };
}

async function fetchExplanation({ model, query, weights }, { text }, query_type, place, signal) {
  const why = await post("explain", { model, query, document: text, query_type }, signal);
  place.replaceChildren(explained(text, why, weights));
  return why;
}

async function toggle(button, panel, why) {
  const opens = panel.hidden;
  button.setAttribute("aria-expanded", String(opens));
  panel.hidden = !opens;
  if (!opens || panel.querySelector(".facts")) return;
  panel.textContent = "Waiting for the explanation …";
  try {
    fill(panel, await why(running.signal));
  } catch (error) {
    if (error.name === "AbortError") return;
    panel.hidden = true;
    button.setAttribute("aria-expanded", "false");
    showProblem(error);
  }
}

// Prefetches explanations one after another, and marks words of several pieces, as long as the server is fast.
async function prefetch(cards, signal) {
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

// Animates every card from its old position to its new one.
function move(cards, reorder) {
  const tops = cards.map(({ element }) => element.getBoundingClientRect().top);
  reorder();
  if (prefersReducedMotion()) return;
  cards.forEach(({ element }, index) => {
    const way = tops[index] - element.getBoundingClientRect().top;
    if (!way) return;
    const from = { transform: `translateY(${way}px)` };
    element.animate([from, { ...from, offset: 0.25 }, { transform: "none" }], { duration: 1100, easing: "ease-in-out" });
  });
}

function prefersReducedMotion() {
  return matchMedia("(prefers-reduced-motion: reduce)").matches;
}

function clearProblem() {
  by("problem").hidden = true;
  form.querySelectorAll("[aria-invalid]").forEach((field) => field.removeAttribute("aria-invalid"));
}

function showProblem(error) {
  const known = error instanceof Problem;
  by("problem").textContent = known ? error.message : "The page failed. Reload it, and report the error to the operator of the server.";
  by("problem").hidden = false;
  if (!known) console.error(error);
  if (error.needsKey) {
    by("key").hidden = false;
    form.elements["api-key"].focus();
  }
}

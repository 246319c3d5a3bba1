// The explanation of a score: the effect of each word, words of several pieces, and attention weights.

import { showAttention } from "./attention.js";
import { walk } from "./words.js";

export function fill(panel, why) {
  panel.replaceChildren(document.getElementById("why").content.cloneNode(true));
  panel.querySelector(".facts").textContent = facts(why);
  showEffects(panel.querySelector(".effects"), why);
  showSplitWords(panel.querySelector(".split-words"), why);
  showAttention(panel.querySelector(".attention"), why);
}

function facts(why) {
  const { with_strm, without_strm } = why.attention;
  const own = why.strm === "off" ? "plain attention" : "STRM";
  return [
    `Score ${number(why.score)}, from a model trained with ${own}.`,
    `The same weights score ${number(with_strm.score)} with STRM and ${number(without_strm.score)} without it.`,
    why.query_type && `Query type: ${why.query_type}.`,
    `${why.pieces.length} word pieces were read${why.cut ? "; the passage is longer, and its end was truncated" : ""}.`,
  ].filter(Boolean).join(" ");
}

function showEffects(section, why) {
  const changes = new Map(why.removed.map(({ word, change }) => [word, change]));
  const most = Math.max(...why.removed.map(({ change }) => Math.abs(change)), 1e-6);
  const reading = section.querySelector(".reading");
  for (const [segment, place] of [["query", ".of-query"], ["document", ".of-document"]]) {
    const list = section.querySelector(`${place} [role=listbox]`);
    const numbers = why.words.flatMap((word, each) => (word.segment === segment ? [each] : []));
    const items = numbers.map((each) => item(why, each, changes.get(each), most));
    items.forEach((each) => list.append(each, " "));
    walk(items, 1, (chosen) => { reading.textContent = items[chosen].ariaLabel; });
  }
}

function item(why, number_, change, most) {
  const word = document.createElement("span");
  word.textContent = why.words[number_].text;
  word.role = "option";
  word.className = "word";
  word.ariaLabel = change === undefined
    ? `“${word.textContent}” was not tested: the passage has too many words.`
    : `Without “${word.textContent}” the score ${effect(change)} ${number(why.score + change)}.`;
  if (change) {
    word.classList.add(change < 0 ? "falls" : "rises");
    word.style.setProperty("--strength", (Math.abs(change) / most).toFixed(3));
  }
  return word;
}

function effect(change) {
  if (Math.abs(change) < 0.005) return "stays at";
  return `${change < 0 ? "falls" : "rises"} by ${number(Math.abs(change))} to`;
}

function showSplitWords(section, why) {
  const seen = new Set();
  for (const word of why.words) {
    const same = word.text.toLowerCase();
    if (word.pieces.length < 2 || seen.has(same)) continue;
    seen.add(same);
    const entry = document.createElement("li");
    entry.append(word.text, " = ");
    word.pieces.forEach((place, order) => {
      const piece = document.createElement(word.representatives.includes(place) ? "b" : "span");
      piece.className = "piece";
      piece.textContent = why.pieces[place].text;
      entry.append(order ? " + " : "", piece);
    });
    section.querySelector("ul").append(entry);
  }
  section.hidden = seen.size === 0;
}

export function number(value) {
  return value.toFixed(2).replace("-", "−");
}

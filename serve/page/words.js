// Marked words in texts, and keyboard navigation through words and cells.

const WORD = /[\p{L}\p{N}]+/gu;

// Words that say little about a passage even if few of the given passages have them.
const FREQUENT = new Set(("a about after all also an and any are as at be because been before but by can could did do "
  + "does for from had has have he her his how i if in into is it its may me more most my no not of on one or other our "
  + "out over she should so some such than that the their them then there these they this those to under up us was we "
  + "were what when where which while who whom whose why will with would you your").split(" "));
const FAINT = 0.15;

// Returns how strongly to mark each word of the query, from FAINT to 1: the fewer of the passages have it, the stronger.
export function rarity(query, passages) {
  const words = passages.map((text) => new Set(text.toLowerCase().match(WORD) ?? []));
  const rarest = Math.log(passages.length + 1);
  return new Map((query.toLowerCase().match(WORD) ?? []).map((word) => {
    const num = Math.max(1, words.filter((own) => own.has(word)).length);
    const share = Math.log((passages.length + 1) / num) / rarest;
    return [word, FREQUENT.has(word) ? FAINT : Math.max(2 * FAINT, share)];
  }));
}

// Returns a passage with the query's words marked, by comparing words without the model.
export function matched(text, weights) {
  const spans = [...text.matchAll(WORD)]
    .filter(([word]) => weights.has(word.toLowerCase()))
    .map((found) => ({ start: found.index, end: found.index + found[0].length, exact: true }));
  return marked(text, spans, weights);
}

// Returns a passage with words marked by an explanation: exact matches with the query, and words of several pieces.
// It also says where the model stopped reading, or between which places it found the best window.
export function explained(text, why, weights) {
  const exact = new Set(why.matches.map(([, number]) => number));
  // The server's offsets count Unicode characters; JavaScript's strings count UTF-16 units.
  const characters = Array.from(text);
  const before = [0];
  for (const character of characters) before.push(before.at(-1) + character.length);
  const spans = why.words
    .map((word, number) => ({
      start: before[why.pieces[word.pieces[0]].start],
      end: before[why.pieces[word.pieces.at(-1)].end],
      exact: exact.has(number),
      several: word.pieces.length > 1,
      segment: word.segment,
    }))
    .filter((span) => span.segment === "document" && (span.exact || span.several));
  const read = why.pieces.filter(({ segment }) => segment === "document").map(({ end }) => before[end]);
  const stops = why.cut ? [{ start: Math.max(0, ...read), stop: "the model stopped reading here", unread: true }] : [];
  if (why.window) {
    stops.push({ start: before[why.window.start], stop: "the best window starts here" });
    stops.push({ start: before[why.window.end], stop: "the best window ends here" });
  }
  const all = [...spans, ...stops.map((stop) => ({ ...stop, end: stop.start }))];
  return marked(text, all.sort((one, other) => one.start - other.start || one.end - other.end), weights);
}

function marked(text, spans, weights) {
  const whole = document.createDocumentFragment();
  let done = 0;
  for (const { start, end, exact, several, stop, unread } of spans) {
    if (stop) {
      whole.append(text.slice(done, start), label(stop));
      done = start;
      if (unread) break;
      continue;
    }
    const word = document.createElement(exact ? "mark" : "span");
    word.className = [exact && "exact", several && "several"].filter(Boolean).join(" ");
    word.textContent = text.slice(start, end);
    // A word that only the model finds equal to one of the query is marked as a rare one.
    if (exact) word.style.setProperty("--rarity", (weights.get(word.textContent.toLowerCase()) ?? 1).toFixed(2));
    whole.append(text.slice(done, start), word);
    done = end;
  }
  const rest = document.createElement("span");
  rest.textContent = text.slice(done);
  rest.className = spans.at(-1)?.unread ? "unread" : "";
  whole.append(rest);
  return whole;
}

function label(text) {
  const element = document.createElement("span");
  element.className = "stop";
  element.textContent = text;
  return element;
}

// Makes one of `items` reachable by Tab and the others by arrow keys, in rows of `width`. Calls `onPoint` with the item
// that has the focus or the pointer.
export function walk(items, width, onPoint) {
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: width, ArrowUp: -width };
  let current = 0;
  items.forEach((item, place) => {
    item.tabIndex = place ? -1 : 0;
    item.addEventListener("focus", () => {
      items[current].tabIndex = -1;
      item.tabIndex = 0;
      current = place;
      onPoint(place);
    });
    item.addEventListener("pointerenter", () => onPoint(place));
    item.addEventListener("click", () => item.focus());
    item.addEventListener("keydown", (event) => {
      const goal = { Home: 0, End: items.length - 1 }[event.key] ?? place + step[event.key];
      if (!(event.key in step) && !["Home", "End"].includes(event.key)) return;
      event.preventDefault();
      items[goal]?.focus();
    });
  });
}

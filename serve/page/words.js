// Marked words in texts, and keyboard navigation through words and cells.

const WORD = /[\p{L}\p{N}]+/gu;

// Returns a passage with the query's words marked, by comparing words without the model.
export function matched(text, query) {
  const asked = new Set((query.toLowerCase().match(WORD) ?? []));
  const spans = [...text.matchAll(WORD)]
    .filter(([word]) => asked.has(word.toLowerCase()))
    .map((found) => ({ start: found.index, end: found.index + found[0].length, exact: true }));
  return marked(text, spans);
}

// Returns a passage with words marked by an explanation: exact matches with the query, and words of several pieces.
export function explained(text, why) {
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
  return marked(text, spans);
}

function marked(text, spans) {
  const whole = document.createDocumentFragment();
  let done = 0;
  for (const { start, end, exact, several } of spans) {
    const word = document.createElement(exact ? "mark" : "span");
    word.className = [exact && "exact", several && "several"].filter(Boolean).join(" ");
    word.textContent = text.slice(start, end);
    whole.append(text.slice(done, start), word);
    done = end;
  }
  whole.append(text.slice(done));
  return whole;
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

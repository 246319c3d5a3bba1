// Words of texts: which are marked and how, and walking through them by keyboard.

const WORD = /[\p{L}\p{N}]+/gu;

// A passage with the query's words marked, as far as they can be told without the model.
export function matched(text, query) {
  const asked = new Set((query.toLowerCase().match(WORD) ?? []));
  const spans = [...text.matchAll(WORD)]
    .filter(([word]) => asked.has(word.toLowerCase()))
    .map((found) => ({ start: found.index, end: found.index + found[0].length, exact: true }));
  return marked(text, spans);
}

// A passage with the words marked that the model found: in the query too, or of several pieces.
export function explained(text, why) {
  const exact = new Set(why.matches.map(([, number]) => number));
  // The server counts characters, JavaScript counts halves of some.
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

// Makes one of `items` reachable by Tab and the others by arrow keys; `width` items are a row. Tells which is pointed at.
export function walk(items, width, told) {
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: width, ArrowUp: -width };
  let current = 0;
  items.forEach((item, place) => {
    item.tabIndex = place ? -1 : 0;
    item.addEventListener("focus", () => {
      items[current].tabIndex = -1;
      item.tabIndex = 0;
      current = place;
      told(place);
    });
    item.addEventListener("pointerenter", () => told(place));
    item.addEventListener("click", () => item.focus());
    item.addEventListener("keydown", (event) => {
      const goal = { Home: 0, End: items.length - 1 }[event.key] ?? place + step[event.key];
      if (!(event.key in step) && !["Home", "End"].includes(event.key)) return;
      event.preventDefault();
      items[goal]?.focus();
    });
  });
}

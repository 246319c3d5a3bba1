// Invented names, which every tokenizer splits into pieces: Faldumondo and Faldumith share their first pieces.
export const example = {
  query: "how tall is the faldumondo lighthouse",
  passages: [
    "The Faldumith lighthouse stands on the cape. Measured from the rock, the height of the Faldumith lighthouse is "
      + "27 metres.",
    "How tall a lighthouse has to be is a question of how far out its lamp is to be seen.",
    "The Faldumondo lighthouse is the work of an architect from the mainland, who was paid in herring.",
    "A tall mast stands beside the Faldumith lighthouse, and a bell for days of fog.",
    "Gulls nest on the gallery. Measured from the rock, the height of the Faldumondo lighthouse is 41 metres, a tall "
      + "tower for a small island.",
    "Visitors to the Faldumondo lighthouse bring bread, lamp oil and news; in return the keeper shows them the stairs.",
  ],
};

// Viridis: even steps of lightness, for all kinds of colour vision.

const STOPS = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"].map(
  (text) => [1, 3, 5].map((start) => parseInt(text.slice(start, start + 2), 16)));

/** The colour of a share from 0 to 1. */
export function viridis(share) {
  const place = Math.min(1, Math.max(0, share)) * (STOPS.length - 1);
  const index = Math.min(STOPS.length - 2, Math.floor(place));
  const mixed = STOPS[index].map((value, channel) => Math.round(value + (STOPS[index + 1][channel] - value) * (place - index)));
  return `rgb(${mixed.join(" ")})`;
}

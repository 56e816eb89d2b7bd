// Pixels are revealed, and the network imagines the rest.

import { ask, latest } from "./api.js";
import { drawBars } from "./bars.js";
import { html, partsOf, shown } from "./drawing.js";
import { fromFile, fromText, paint, toText } from "./pixels.js";

const NAMES = { celeba: "CelebA test faces", imagined: "faces the network dreamt up", drawn: "drawn faces", file: "your own picture", empty: "paint one yourself" };
const KEYS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

export class FacesPanel {
  constructor(panel, about) {
    this.parts = partsOf(panel);
    this.about = about;
    this.size = about.size;
    this.known = new Set();
    this.cell = [about.size / 2, about.size / 2]; // where the keyboard is: row, column
    this.number = 0;
    const sources = ["celeba", "imagined", "drawn"].filter((name) => about.sources[name]);
    for (const name of [...sources, "file", "empty"]) this.parts.source.append(html("option", { value: name, textContent: NAMES[name] }));
    this.refresh = latest(() => this.complete());
    this.listen();
    this.choose();
  }

  get brush() { return Number(this.parts.brush.value); }
  get source() { return this.parts.source.value; }

  listen() {
    const { parts } = this;
    const canvas = parts.known;
    let held = false, last = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      held = true;
      canvas.setPointerCapture(event.pointerId);
      last = this.place(event);
      this.stroke([last]);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!held) return;
      const next = this.place(event);
      this.stroke(between(last, next));
      last = next;
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { held = false; });
    canvas.addEventListener("keydown", (event) => this.key(event));
    for (const name of ["focus", "blur"]) canvas.addEventListener(name, () => this.drawCell());
    parts.source.addEventListener("change", () => {
      if (this.source === "file") parts.file.click();
      else this.choose();
    });
    parts.file.addEventListener("change", () => this.load(parts.file.files[0]));
    parts.next.addEventListener("click", () => (this.source === "file" ? parts.file.click() : this.choose(1)));
    parts.random.addEventListener("click", () => this.reveal(this.someHidden(10)));
    parts.half.addEventListener("click", () => this.reveal(range(this.size ** 2 / 2)));
    parts.hide.addEventListener("click", () => this.hide());
  }

  key(event) {
    const within = (value) => Math.min(this.size - 1, Math.max(0, value));
    if (KEYS[event.key]) this.cell = this.cell.map((value, axis) => within(value + KEYS[event.key][axis]));
    else if (event.key === " " || event.key === "Enter") this.stroke([this.cell]);
    else return;
    event.preventDefault();
    this.drawCell();
  }

  /** Row and column at a pointer. */
  place(event) {
    const box = this.parts.known.getBoundingClientRect();
    return [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width]
      .map((share) => Math.min(this.size - 1, Math.max(0, Math.floor(share * this.size))));
  }

  /** The pixels under the brush become known; on an empty picture they take its colour. */
  stroke(places) {
    const before = Math.floor((this.brush - 1) / 2); // of the brush's pixels, so many are above and left of its place
    const touched = [];
    for (const [row, column] of places) {
      for (let r = row - before; r < row - before + this.brush; r++) {
        for (let c = column - before; c < column - before + this.brush; c++) {
          if (r >= 0 && c >= 0 && r < this.size && c < this.size) touched.push(r * this.size + c);
        }
      }
    }
    if (this.source === "empty") {
      const colour = [1, 3, 5].map((start) => parseInt(this.parts.colour.value.slice(start, start + 2), 16));
      for (const pixel of touched) this.picture.set(colour, 3 * pixel);
    }
    this.reveal(touched);
  }

  reveal(pixels) {
    for (const pixel of pixels) this.known.add(pixel);
    paint(this.parts.known, this.picture, this.size, this.known);
    return this.refresh();
  }

  hide() {
    this.known.clear();
    if (this.source === "empty") this.picture.fill(0);
    this.reveal([]);
  }

  /** `count` random pixels that are not known yet. */
  someHidden(count) {
    const hidden = range(this.size ** 2).filter((pixel) => !this.known.has(pixel));
    return Array.from({ length: Math.min(count, hidden.length) },
      () => hidden.splice(Math.floor(Math.random() * hidden.length), 1)[0]);
  }

  /** A picture of the chosen source, with ten of its pixels known. */
  async choose(further = 0) {
    this.number += further;
    const own = this.source === "empty";
    if (own) this.picture = new Uint8Array(3 * this.size ** 2);
    else this.picture = fromText((await ask(`faces/picture?source=${this.source}&number=${this.number}`)).picture);
    return this.begin(own ? 0 : 10);
  }

  async load(file) {
    if (!file) return;
    try {
      this.picture = await fromFile(file, this.size);
    } catch {
      this.parts.status.textContent = `${file.name} is no picture that this browser can read.`;
      return;
    }
    this.begin(10);
  }

  begin(known) {
    const { parts } = this;
    const empty = this.source === "empty";
    parts.original.closest("figure").hidden = empty;
    parts["colour-label"].hidden = !empty;
    parts.random.hidden = parts.half.hidden = empty;
    parts.next.hidden = empty;
    this.known.clear();
    paint(parts.original, this.picture, this.size);
    return this.reveal(this.someHidden(known));
  }

  async complete() {
    const { parts } = this;
    const known = [...this.known].sort((one, other) => one - other);
    const answer = await ask("faces", { picture: toText(this.picture), known });
    paint(parts.completed, fromText(answer.completion), this.about.width);
    if (answer.context) drawBars(parts.bars, answer.context, Math.max(0.05, ...answer.context.map(Math.abs)));
    parts["context-note"].textContent = `${answer.context?.length ?? 0} numbers`;
    const model = this.about.models[answer.model];
    const of = `${known.length} of ${this.size ** 2} pixels known (${shown((100 * known.length) / this.size ** 2, 0)} %)`;
    const error = this.source === "empty" || !known.length ? "" : `, mean squared error of the whole picture ${shown(answer.mse, 4)}`;
    parts.status.textContent = known.length ? `${of}${error}; ${model.trained_steps} gradient steps.`
      : "Nothing known yet: this is the face that the network starts from.";
    parts.hide.disabled = !known.length;
  }

  drawCell() {
    paint(this.parts.known, this.picture, this.size, this.known);
    if (document.activeElement !== this.parts.known || !this.parts.known.matches(":focus-visible")) return;
    const context = this.parts.known.getContext("2d");
    context.fillStyle = "#ff9a3c";
    context.fillRect(this.cell[1], this.cell[0], 1, 1);
  }
}

function range(count) {
  return Array.from({ length: count }, (_, index) => index);
}

/** All places on the way from one to the next, so that a quick stroke has no gaps. */
function between([row, column], [toRow, toColumn]) {
  const steps = Math.max(Math.abs(toRow - row), Math.abs(toColumn - column), 1);
  return range(steps + 1).map((step) => [row + ((toRow - row) * step) / steps, column + ((toColumn - column) * step) / steps].map(Math.round));
}

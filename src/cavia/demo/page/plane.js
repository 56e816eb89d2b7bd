// A plane of tasks: every place of it is a function, and a thousand tasks have theirs.

import { ask, latest } from "./api.js";
import { viridis } from "./colours.js";
import { Gliding, html, legendEntry, partsOf, Plot, shown, svg } from "./drawing.js";

const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
const COLOURED = { amplitude: "amplitude A", phase: "phase p" };

export class PlanePanel {
  constructor(panel, about) {
    this.parts = partsOf(panel);
    this.about = about;
    this.place = [0, 0];
    this.by = "amplitude";
    const [x, y] = about.range;
    this.map = new Plot(this.parts.map, {
      x, y, xTicks: ticks(x), yTicks: ticks(y), xLabel: "φ₁", yLabel: "φ₂", active: true,
      label: "The plane of tasks. Arrow keys move through it, with Shift in larger steps.",
      layers: ["tasks", "near", "place"], draw: () => this.drawMap(),
    });
    this.plot = new Plot(this.parts.plot, {
      x: about.x, y: about.y, xTicks: [-4, -2, 0, 2, 4], yTicks: [-6, -4, -2, 0, 2, 4, 6], xLabel: "x", yLabel: "y",
      label: "The function at that place", layers: ["truth", "curve"], draw: () => this.drawCurve(),
    });
    this.curve = svg("path", { class: "curve first" });
    this.truth = svg("path", { class: "curve truth" });
    this.plot.layers.curve.append(this.curve);
    this.plot.layers.truth.append(this.truth);
    this.gliding = new Gliding((ys) => this.curve.setAttribute("d", this.plot.path(about.grid, ys)), 90);
    this.refresh = latest(() => this.look());
    this.parts.legend.replaceChildren(
      legendEntry("first", "the network at this context"), legendEntry("truth", "the nearest task's true curve"));
    this.listen();
    this.colour();
    this.go([0, 0]);
  }

  listen() {
    const { svg: field } = this.map;
    let held = false;
    field.style.touchAction = "none";
    field.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      held = true;
      field.setPointerCapture(event.pointerId);
      this.go(this.map.at(event));
    });
    field.addEventListener("pointermove", (event) => held && this.go(this.map.at(event)));
    for (const end of ["pointerup", "pointercancel"]) field.addEventListener(end, () => { held = false; });
    field.addEventListener("keydown", (event) => {
      if (!KEYS[event.key]) return;
      event.preventDefault();
      this.go(this.place.map((value, axis) => {
        const [low, high] = this.about.range[axis];
        const step = (high - low) * (event.shiftKey ? 0.1 : 0.02);
        return Math.min(high, Math.max(low, value + KEYS[event.key][axis] * step));
      }));
    });
    for (const button of this.parts.by.querySelectorAll("button")) {
      button.addEventListener("click", () => {
        this.by = button.value;
        this.colour();
      });
    }
  }

  go(place) {
    this.place = place;
    this.drawPlace();
    return this.refresh();
  }

  async look() {
    const context = this.place;
    this.answer = await ask("plane", { context });
    this.drawCurve();
    this.drawPlace();
    const { amplitude, phase } = this.answer.nearest;
    this.parts.status.textContent = `φ = (${context.map((value) => shown(value)).join(", ")}); the nearest task is `
      + `${shown(amplitude)}·sin(x − ${shown(phase)}).`;
  }

  drawCurve() {
    if (!this.answer) return;
    this.gliding.to(this.answer.curve);
    this.truth.setAttribute("d", this.plot.path(this.about.grid, this.answer.nearest.curve));
  }

  drawMap() {
    const values = this.about[this.by];
    const [low, high] = [Math.min(...values), Math.max(...values)];
    this.map.layers.tasks.replaceChildren(...this.about.contexts.map(([x, y], index) => svg("circle", {
      cx: this.map.toX(x), cy: this.map.toY(y), r: 3.2, fill: viridis((values[index] - low) / (high - low)), class: "task",
    })));
    this.drawPlace();
  }

  drawPlace() {
    const [cx, cy] = [this.map.toX(this.place[0]), this.map.toY(this.place[1])];
    this.map.layers.place.replaceChildren(
      svg("circle", { cx, cy, r: 11, class: "ring outer" }), svg("circle", { cx, cy, r: 11, class: "ring" }));
    if (!this.answer) return;
    const [x, y] = this.about.contexts[this.answer.nearest.task];
    this.map.layers.near.replaceChildren(
      svg("line", { x1: cx, y1: cy, x2: this.map.toX(x), y2: this.map.toY(y), class: "cross" }));
  }

  /** Colour the tasks by what was chosen, and say what the colours mean. */
  colour() {
    for (const button of this.parts.by.querySelectorAll("button")) {
      button.setAttribute("aria-pressed", `${button.value === this.by}`);
    }
    const values = this.about[this.by];
    const strip = html("span", { className: "strip" });
    strip.style.background = `linear-gradient(90deg, ${Array.from({ length: 9 }, (_, index) => viridis(index / 8)).join(", ")})`;
    this.parts.scale.replaceChildren(
      html("span", {}, shown(Math.min(...values), 1)), strip, html("span", {}, shown(Math.max(...values), 1)),
      html("span", { className: "quiet" }, COLOURED[this.by]));
    this.drawMap();
  }
}

/** Four to nine round numbers in a range. */
function ticks([low, high]) {
  const rough = (high - low) / 6;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((times) => times * power >= rough);
  const numbers = [];
  for (let tick = Math.ceil(low / step); tick * step <= high; tick++) numbers.push(Number((tick * step).toPrecision(6)));
  return numbers;
}

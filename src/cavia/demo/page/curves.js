// Points become a curve: CAVIA beside MAML, after each number of gradient steps.

import { ask, latest } from "./api.js";
import { drawBars } from "./bars.js";
import { Gliding, html, legendEntry, partsOf, Plot, shown, svg } from "./drawing.js";

const LOOKS = ["first", "second"];
const NEAR = 6; // pixels that a click may wander
const TICKS = [-6, -4, -2, 0, 2, 4, 6];

export class CurvesPanel {
  constructor(panel, about) {
    this.parts = partsOf(panel);
    this.about = about;
    this.points = []; // [x, y]
    this.truth = null; // of a curve that was drawn
    this.answer = null;
    this.cross = [0, 0]; // where the keyboard is
    this.steps = Math.max(...about.models.map((model) => model.trained_steps));
    this.parts.steps.max = about.most_steps;
    this.parts.steps.value = this.steps;
    this.plot = new Plot(this.parts.plot, {
      x: about.x, y: about.y, xTicks: [-4, -2, 0, 2, 4], yTicks: TICKS, xLabel: "x", yLabel: "y", active: true,
      label: "Points and curves. Arrow keys move a cross, Enter places a point or takes it away, Backspace undoes.",
      layers: ["hints", "starts", "curves", "points", "keys"], draw: () => this.draw(),
    });
    this.errors = new Plot(this.parts.errors, {
      x: [-0.5, about.most_steps + 0.5], y: [0.1, 1], log: true, xTicks: [0, 2, 4, 6, 8, 10], yTicks: [0.1, 1], xLabel: "gradient steps",
      yLabel: "MSE", label: "Error at the points after each number of steps", layers: ["now", "dots"],
      draw: () => this.drawErrors(), margin: { top: 8, left: 60 },
    });
    this.paths = about.models.map((model, index) => {
      const path = svg("path", { class: `curve ${LOOKS[index]}`, "data-model": model.label });
      this.plot.layers.curves.append(path);
      return path;
    });
    this.gliding = this.paths.map((path) => new Gliding((ys) => path.setAttribute("d", this.plot.path(this.answer.x, ys))));
    this.refresh = latest(() => this.adapt());
    this.listen();
    this.drawNew(0);
  }

  listen() {
    const { parts, plot } = this;
    parts.steps.addEventListener("input", () => this.show());
    parts.clear.addEventListener("click", () => this.change([]));
    parts.undo.addEventListener("click", () => this.change(this.points.slice(0, -1)));
    parts.draw.addEventListener("click", () => this.drawNew(Math.floor(Math.random() * 2 ** 31)));
    let held = null; // what a pointer holds: { index of a point or null, where it began, whether it moved }
    plot.svg.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      const index = event.target.dataset.index;
      held = { index: index === undefined ? null : Number(index), from: [event.clientX, event.clientY], moved: false };
      if (held.index !== null) plot.svg.setPointerCapture(event.pointerId);
    });
    plot.svg.addEventListener("pointermove", (event) => {
      if (!held) return;
      held.moved ||= Math.hypot(event.clientX - held.from[0], event.clientY - held.from[1]) > NEAR;
      if (held.index !== null && held.moved) this.change(this.points.with(held.index, plot.at(event)));
    });
    plot.svg.addEventListener("pointerup", (event) => {
      if (held && !held.moved && held.index === null) this.add(plot.at(event));
      else if (held && !held.moved) this.change(this.points.toSpliced(held.index, 1));
      held = null;
    });
    plot.svg.addEventListener("pointercancel", () => { held = null; });
    plot.svg.addEventListener("keydown", (event) => this.key(event));
    plot.svg.addEventListener("focus", () => this.drawCross());
    plot.svg.addEventListener("blur", () => plot.layers.keys.replaceChildren());
  }

  key(event) {
    const step = event.shiftKey ? 1 : 0.25;
    const moves = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (moves[event.key]) {
      const within = (value, [low, high]) => Math.min(high, Math.max(low, value));
      const [x, y] = this.cross;
      this.cross = [within(x + moves[event.key][0], this.about.x), within(y + moves[event.key][1], this.about.y)];
      this.drawCross();
    } else if (event.key === "Enter" || event.key === " ") {
      const index = this.points.findIndex(([x, y]) => Math.hypot(x - this.cross[0], y - this.cross[1]) < 0.2);
      if (index < 0) this.add(this.cross);
      else this.change(this.points.toSpliced(index, 1));
    } else if (event.key === "Backspace" || event.key === "Delete") {
      this.change(this.points.slice(0, -1));
    } else return;
    event.preventDefault();
  }

  add(point) {
    if (this.points.length < this.about.most_points) this.change([...this.points, point]);
  }

  change(points, truth = null) {
    Object.assign(this, { points, truth });
    this.drawPoints();
    return this.refresh();
  }

  async drawNew(seed) {
    const task = await ask(`curves/task?seed=${seed}`);
    return this.change(task.points, task);
  }

  async adapt() {
    const points = this.points.map(([x, y]) => ({ x, y }));
    const answer = await ask("curves", { points, steps: this.about.most_steps });
    this.answer = { ...answer, points: points.length }; // by now there may be more
    this.drawErrors();
    this.show();
  }

  /** The state after the chosen number of steps. */
  show() {
    const { parts, answer } = this;
    this.steps = Number(parts.steps.value);
    parts.count.value = this.steps;
    if (!answer) return;
    answer.models.forEach((model, index) => this.gliding[index].to(model.curves[Math.min(this.steps, model.curves.length - 1)]));
    this.drawTruth();
    this.drawLegend();
    this.drawNow();
    const contexts = answer.models.find((model) => model.contexts)?.contexts;
    parts.bars.hidden = !contexts;
    if (contexts) {
      const largest = Math.max(0.5, ...contexts.flat().map((value) => Math.abs(value ?? 0)));
      drawBars(parts.bars, contexts[Math.min(this.steps, contexts.length - 1)], largest);
      parts["context-note"].textContent = `all that CAVIA moves: ${contexts[0].length} numbers`;
    }
    parts.undo.disabled = parts.clear.disabled = !this.points.length;
    parts.status.textContent = this.words();
  }

  words() {
    const { answer, truth } = this;
    if (!answer.points) return "No points yet: this is where adaptation starts.";
    const errors = answer.models.map((model) => `${model.label} ${shown(model.errors[this.steps], 3)}`).join(", ");
    const curve = truth ? ` The dotted curve is ${shown(truth.amplitude, 1)}·sin(x − ${shown(truth.phase, 1)}).` : "";
    const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
    return `${plural(answer.points, "point")}, mean squared error at them after ${plural(this.steps, "step")}: ${errors}.${curve}`;
  }

  draw() {
    this.drawPoints();
    this.gliding?.forEach((gliding) => gliding.now && gliding.show(gliding.now));
    this.drawTruth();
  }

  drawPoints() {
    const { layers } = this.plot;
    layers.points.replaceChildren(...this.points.flatMap(([x, y], index) => {
      const place = { cx: this.plot.toX(x), cy: this.plot.toY(y) };
      return [svg("circle", { ...place, r: 16, class: "handle", "data-index": index }), svg("circle", { ...place, r: 6, class: "mark" })];
    }));
    const hint = svg("text", { x: this.plot.width / 2, y: this.plot.toY(4.6), class: "hint" }, "Click anywhere to place a point");
    layers.hints.replaceChildren(...(this.points.length ? [] : [hint]));
  }

  /** What the points were drawn from, and faintly where the networks started. */
  drawTruth() {
    if (!this.answer) return;
    const lines = this.answer.models.map((model, index) =>
      svg("path", { class: `curve start ${LOOKS[index]}`, d: this.plot.path(this.answer.x, model.curves[0]) }));
    if (this.truth) lines.push(svg("path", { class: "curve truth", d: this.plot.path(this.answer.x, this.truth.curve) }));
    this.plot.layers.starts.replaceChildren(...lines);
  }

  drawCross() {
    const [x, y] = [this.plot.toX(this.cross[0]), this.plot.toY(this.cross[1])];
    this.plot.layers.keys.replaceChildren(
      svg("line", { x1: x - 10, x2: x + 10, y1: y, y2: y, class: "cross" }),
      svg("line", { x1: x, x2: x, y1: y - 10, y2: y + 10, class: "cross" }),
    );
  }

  drawLegend() {
    const entries = this.about.models.map((model, index) => legendEntry(LOOKS[index], html("span", {},
      `${model.label}, ${model.adapts.toLocaleString("en")} numbers adapt, error `,
      html("b", { textContent: shown(this.answer.models[index].errors[this.steps], 3) }))));
    if (this.truth) entries.push(legendEntry("truth", "the curve that the points are from"));
    this.parts.legend.replaceChildren(...entries);
  }

  drawErrors() {
    if (!this.answer) return;
    const errors = this.answer.models.map((model) => model.errors);
    const known = errors.flat().filter((value) => value > 0).map(Math.log10);
    const low = Math.min(-1, Math.floor(Math.min(...known))), high = Math.max(0, Math.ceil(Math.max(...known)));
    const decades = Array.from({ length: high - low + 1 }, (_, index) => 10 ** (low + index));
    Object.assign(this.errors, { y: [10 ** (low - 0.2), 10 ** (high + 0.2)], yTicks: decades.filter((_, index) => (high - low < 4) || index % 2 === 0) });
    this.errors.axes();
    this.errors.layers.dots.replaceChildren(...errors.flatMap((values, index) => values.map((value, step) => {
      const cx = this.errors.toX(step + 0.16 * (2 * index - 1)); // beside each other
      return value > 0 ? svg("circle", { cx, cy: this.errors.toY(value), r: 4, class: `dot ${LOOKS[index]}` }) : "";
    })));
    this.drawNow();
  }

  drawNow() {
    const [left, right] = [this.errors.toX(this.steps - 0.5), this.errors.toX(this.steps + 0.5)];
    this.errors.layers.now.replaceChildren(svg("rect", {
      x: left, width: right - left, y: this.errors.margin.top, class: "now",
      height: this.errors.height - this.errors.margin.top - this.errors.margin.bottom,
    }));
  }
}

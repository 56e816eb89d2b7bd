// A goal revealed only through reward: the paths of a policy before and after each update.

import { ask, latest } from "./api.js";
import { drawBars } from "./bars.js";
import { calm, legendEntry, partsOf, Plot, shown, svg } from "./drawing.js";

const ROOM = 0.75; // of the map, along each axis, from the start
const KEYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

export class NavigationPanel {
  constructor(panel, about) {
    this.parts = partsOf(panel);
    this.about = about;
    this.goal = [0.3, 0.35];
    this.seed = 0;
    this.parts.updates.max = about.most_updates;
    this.parts.updates.value = Math.min(2, about.most_updates);
    const ticks = [-0.5, 0, 0.5];
    this.map = new Plot(this.parts.map, {
      x: [-ROOM, ROOM], y: [-ROOM, ROOM], xTicks: ticks, yTicks: ticks, xLabel: "x", yLabel: "y", active: true,
      label: "The map. Click to set the goal, or move it with the arrow keys.",
      layers: ["square", "episodes", "paths", "goal"], draw: () => this.draw(),
    });
    this.returns = new Plot(this.parts.returns, {
      x: [-0.5, about.most_updates + 0.5], y: [-80, 0], xTicks: Array.from({ length: about.most_updates + 1 }, (_, i) => i),
      yTicks: [-80, -40, 0], xLabel: "updates", yLabel: "return", layers: ["now", "bars"], margin: { top: 8, left: 56 },
      label: "Return after each number of updates", draw: () => this.draw(),
    });
    this.refresh = latest(() => this.walk());
    this.listen();
    this.refresh();
  }

  listen() {
    const { map, parts } = this;
    let held = false;
    map.svg.style.touchAction = "none";
    map.svg.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      held = true;
      map.svg.setPointerCapture(event.pointerId);
      this.aim(map.at(event));
    });
    map.svg.addEventListener("pointermove", (event) => held && this.aim(map.at(event)));
    for (const end of ["pointerup", "pointercancel"]) map.svg.addEventListener(end, () => { held = false; });
    map.svg.addEventListener("keydown", (event) => {
      if (!KEYS[event.key]) return;
      event.preventDefault();
      const step = event.shiftKey ? 0.1 : 0.05;
      this.aim(this.goal.map((value, axis) => value + KEYS[event.key][axis] * step));
    });
    parts.updates.addEventListener("input", () => this.draw(true));
    parts.again.addEventListener("click", () => {
      this.seed = Math.floor(Math.random() * 2 ** 31);
      this.refresh();
    });
  }

  aim(place) {
    const { farthest } = this.about;
    this.goal = place.map((value) => Math.min(farthest, Math.max(-farthest, Number(value.toFixed(4)))));
    this.drawGoal();
    this.refresh();
  }

  async walk() {
    const { goal, seed } = this;
    const answer = await ask("navigation", { goal, updates: this.about.most_updates, seed });
    this.answer = { ...answer, goal }; // by now it may be another
    this.draw(true);
  }

  draw(moving = false) {
    this.drawGoal();
    if (!this.answer) return;
    const updates = Number(this.parts.updates.value);
    const { stages } = this.answer;
    this.parts.count.value = updates;
    this.map.layers.episodes.replaceChildren(...stages[updates].episodes.map((path) =>
      svg("path", { class: "curve episode", d: this.path(path) })));
    this.map.layers.paths.replaceChildren(...stages.slice(0, updates + 1).flatMap((stage, index) => {
      const path = svg("path", { class: `curve way way-${index}${index === updates ? " last" : ""}`, d: this.path(stage.path) });
      const [x, y] = stage.path.at(-1);
      const end = svg("circle", { cx: this.map.toX(x), cy: this.map.toY(y), r: 5, class: `end way-${index}` });
      if (index === updates && moving) unroll(path);
      return [path, end];
    }));
    this.drawReturns(stages, updates);
    const contexts = stages.map((stage) => stage.context).filter(Boolean);
    if (contexts.length) drawBars(this.parts.bars, contexts[updates], Math.max(0.1, ...contexts.flat().map(Math.abs)));
    this.parts.legend.replaceChildren(...stages.slice(0, updates + 1).map((_, index) =>
      legendEntry(`way way-${index}`, index ? `after update ${index}` : "before any update")),
      legendEntry("episode", `episodes that ${updates < this.about.most_updates ? "the next update learns from" : "the last policy tries"}`));
    const returns = stages.map((stage) => shown(stage.return, 1)).slice(0, updates + 1).join(", ");
    this.parts.status.textContent = `Goal (${this.answer.goal.map((value) => shown(value)).join(", ")}); `
      + `return of the most likely path after 0 … ${updates} updates: ${returns} (0 is best).`;
  }

  drawReturns(stages, updates) {
    const lowest = Math.min(-20, ...stages.map((stage) => stage.return));
    const low = Math.ceil((-1.2 * lowest) / 20) * -20; // with room for a number below the longest bar
    Object.assign(this.returns, { y: [low, 0], yTicks: [low, low / 2, 0] });
    this.returns.axes();
    const { returns } = this;
    this.returns.layers.bars.replaceChildren(...stages.flatMap((stage, index) => {
      const [x, y] = [returns.toX(index), returns.toY(stage.return)];
      const look = `fill way-${index}${index > updates ? " later" : ""}`;
      const label = { x, y: y + 14, "text-anchor": "middle" };
      return [
        svg("rect", { x: x - 14, width: 28, y: returns.toY(0), height: Math.max(2, y - returns.toY(0)), class: look }),
        svg("text", label, shown(stage.return, 1)),
      ];
    }));
  }

  drawGoal() {
    const { map } = this;
    const { farthest } = this.about;
    map.layers.square.replaceChildren(svg("rect", {
      x: map.toX(-farthest), y: map.toY(farthest), width: map.toX(farthest) - map.toX(-farthest),
      height: map.toY(-farthest) - map.toY(farthest), class: "bounds",
    }), svg("circle", { cx: map.toX(0), cy: map.toY(0), r: 5, class: "mark" }));
    const [cx, cy] = [map.toX(this.goal[0]), map.toY(this.goal[1])];
    map.layers.goal.replaceChildren(
      svg("circle", { cx, cy, r: 12, class: "goal-ring" }), svg("circle", { cx, cy, r: 4, class: "goal-dot" }));
  }

  path(places) {
    return this.map.path(places.map(([x]) => x), places.map(([, y]) => y));
  }
}

/** Let a path grow from its start. */
function unroll(path) {
  if (calm.matches) return;
  requestAnimationFrame(() => {
    const length = path.getTotalLength();
    path.animate([{ strokeDasharray: `${length} ${length}`, strokeDashoffset: length },
      { strokeDasharray: `${length} ${length}`, strokeDashoffset: 0 }], { duration: 500, easing: "ease-out" });
  });
}

// SVG: elements, plots with axes, and movement that respects "reduced motion".

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { top: 10, right: 12, bottom: 38, left: 44 };
export const calm = matchMedia("(prefers-reduced-motion: reduce)");

/** A new SVG element with these attributes. */
export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** A new HTML element with these properties. */
export function html(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

/** The parts of a panel by their names. */
export function partsOf(panel) {
  return Object.fromEntries([...panel.querySelectorAll("[data-part]")].map((part) => [part.dataset.part, part]));
}

/** A number as the page shows it. */
export function shown(value, digits = 2) {
  if (value === null || value === undefined) return "–";
  const text = Math.abs(value) >= 1000 ? value.toExponential(1) : value.toFixed(digits);
  return text.replace("-", "−");
}

/** A line of that look, and what it means. */
export function legendEntry(look, words) {
  const sample = svg("svg", { viewBox: "0 0 36 12", "aria-hidden": "true" }, svg("path", { d: "M2 6H34", class: `curve ${look}` }));
  return html("span", { className: "entry" }, sample, words);
}

/** Axes in a place of the page; `draw` is called whenever its size changes. Layers are drawn in their order. */
export class Plot {
  static made = 0;

  constructor(host, { x, y, xTicks, yTicks, xLabel, yLabel, label, layers, draw, active = false, margin = {}, log = false }) {
    Object.assign(this, { host, x, y, xTicks, yTicks, xLabel, yLabel, draw, log, margin: { ...MARGIN, ...margin } });
    this.svg = svg("svg", { role: active ? "application" : "img", "aria-label": label });
    if (active) {
      this.svg.setAttribute("tabindex", "0");
      host.classList.add("active");
    }
    this.frame = svg("rect");
    const clip = `clip-${++Plot.made}`;
    this.svg.append(svg("clipPath", { id: clip }, this.frame));
    this.layers = { grid: svg("g", { class: "grid" }) };
    for (const name of layers) this.layers[name] = svg("g", { class: name, "clip-path": `url(#${clip})` });
    this.svg.append(...Object.values(this.layers));
    host.replaceChildren(this.svg);
    new ResizeObserver(() => this.resize()).observe(host);
    this.fit();
  }

  resize() {
    if (this.fit()) this.draw?.();
  }

  /** Take the size of the place; returns whether it changed. */
  fit() {
    const { width, height } = this.host.getBoundingClientRect();
    if (!width || (width === this.width && height === this.height)) return false;
    [this.width, this.height] = [width, height];
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const { left, right, top, bottom } = this.margin;
    const inside = { x: left, y: top, width: Math.max(0, width - left - right), height: Math.max(0, height - top - bottom) };
    for (const [name, value] of Object.entries(inside)) this.frame.setAttribute(name, value);
    this.axes();
    return true;
  }

  toX(value) {
    const { left, right } = this.margin;
    return left + ((value - this.x[0]) / (this.x[1] - this.x[0])) * (this.width - left - right);
  }

  toY(value) {
    const { top, bottom } = this.margin;
    const [now, low, high] = [value, ...this.y].map((number) => (this.log ? Math.log(number) : number));
    return this.height - bottom - ((now - low) / (high - low)) * (this.height - top - bottom);
  }

  /** The numbers at a pointer's place, kept inside the axes. */
  at(event) {
    const box = this.svg.getBoundingClientRect();
    const { left, right, top, bottom } = this.margin;
    const across = (event.clientX - box.left - left) / (this.width - left - right);
    const up = (this.height - bottom - (event.clientY - box.top)) / (this.height - top - bottom);
    const within = (share, [low, high]) => low + Math.min(1, Math.max(0, share)) * (high - low);
    return [within(across, this.x), within(up, this.y)];
  }

  axes() {
    const lines = [];
    const edge = this.height - this.margin.bottom;
    for (const tick of this.xTicks) {
      const x = this.toX(tick);
      lines.push(svg("line", { x1: x, x2: x, y1: this.margin.top, y2: edge, class: tick === 0 ? "zero" : "" }));
      lines.push(svg("text", { x, y: edge + 16, "text-anchor": "middle" }, `${tick}`.replace("-", "−")));
    }
    for (const tick of this.yTicks) {
      const y = this.toY(tick);
      lines.push(svg("line", {
        x1: this.margin.left, x2: this.width - this.margin.right, y1: y, y2: y, class: tick === 0 ? "zero" : "",
      }));
      lines.push(svg("text", { x: this.margin.left - 8, y: y + 4, "text-anchor": "end" }, `${tick}`.replace("-", "−")));
    }
    const middle = (this.margin.left + this.width - this.margin.right) / 2;
    lines.push(svg("text", { x: middle, y: this.height - 4, "text-anchor": "middle" }, this.xLabel));
    const half = (this.margin.top + edge) / 2;
    lines.push(svg("text", { x: 0, y: 0, "text-anchor": "middle", transform: `translate(12 ${half}) rotate(-90)` },
      this.yLabel));
    this.layers.grid.replaceChildren(...lines);
  }

  /** The path of a curve; it is interrupted where a number is missing. */
  path(xs, ys) {
    let pen = "M";
    return xs.map((x, index) => {
      if (ys[index] === null) {
        pen = "M";
        return "";
      }
      const piece = `${pen}${this.toX(x).toFixed(2)} ${this.toY(ys[index]).toFixed(2)}`;
      pen = "L";
      return piece;
    }).join("");
  }
}

/** Numbers that glide to new ones; `show` is called with each state, at last with the new ones themselves. */
export class Gliding {
  constructor(show, milliseconds = 220) {
    Object.assign(this, { show, milliseconds, now: null, frame: 0 });
  }

  to(values) {
    cancelAnimationFrame(this.frame);
    const from = this.now;
    const fits = from && from.length === values.length && !values.includes(null) && !from.includes(null);
    if (!fits || calm.matches) return this.set(values);
    const begun = performance.now();
    const tick = (time) => {
      const share = Math.min(1, (time - begun) / this.milliseconds);
      if (share >= 1) return this.set(values);
      const eased = 1 - (1 - share) ** 3;
      this.now = values.map((value, index) => from[index] + (value - from[index]) * eased);
      this.show(this.now);
      this.frame = requestAnimationFrame(tick);
    };
    this.frame = requestAnimationFrame(tick);
  }

  set(values) {
    this.now = values;
    this.show(values);
  }
}

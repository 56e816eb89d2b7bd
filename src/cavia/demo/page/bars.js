// The numbers of a context as bars around zero.

import { html, shown } from "./drawing.js";

const MOST_LABELLED = 10;

/** Draws `values` into `host`; `largest` is the number whose bar fills its half. */
export function drawBars(host, values, largest) {
  const labelled = values.length <= MOST_LABELLED;
  host.classList.toggle("many", !labelled);
  if (host.children.length !== values.length) host.replaceChildren(...values.map((_, index) => bar(index, labelled)));
  host.setAttribute("role", "img");
  host.setAttribute("aria-label", `context: ${values.slice(0, MOST_LABELLED).map((value) => shown(value)).join(", ")}`);
  values.forEach((value, index) => {
    const height = 50 * Math.min(1, Math.abs(value ?? 0) / largest);
    const fill = host.children[index].querySelector(".fill");
    fill.style.top = `${value > 0 ? 50 - height : 50}%`;
    fill.style.height = `${height}%`;
    if (labelled) host.children[index].querySelector(".value").textContent = shown(value);
  });
}

function bar(index, labelled) {
  const well = html("div", { className: "well" }, html("div", { className: "fill" }));
  if (!labelled) return html("div", { className: "bar" }, well);
  const name = html("div", {}, "φ", html("sub", { textContent: `${index + 1}` }));
  return html("div", { className: "bar" }, name, well, html("div", { className: "value" }));
}

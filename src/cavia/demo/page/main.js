// The page begins: what panels there are is the server's to say.

import { ask } from "./api.js";
import { CurvesPanel } from "./curves.js";
import { html } from "./drawing.js";
import { FacesPanel } from "./faces.js";
import { NavigationPanel } from "./navigation.js";
import { PlanePanel } from "./plane.js";

const PANELS = { curves: CurvesPanel, plane: PlanePanel, faces: FacesPanel, navigation: NavigationPanel };

async function begin() {
  const about = await ask("about");
  document.getElementById("version").textContent = about.version;
  for (const [name, Panel] of Object.entries(PANELS)) {
    if (!about[name]) continue;
    const section = document.getElementById(name);
    section.hidden = false;
    const title = section.querySelector("h2").textContent;
    document.getElementById("contents").append(html("a", { href: `#${name}`, textContent: title }));
    new Panel(section, about[name]);
    for (const model of about[name].models) {
      const words = [model.about, model.score].filter(Boolean).join("; ");
      document.getElementById("models").append(html("li", { textContent: words }));
    }
  }
}

begin();

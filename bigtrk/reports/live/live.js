"use strict";
const PAUSE = 2000, now = document.getElementById("now"), silent = document.getElementById("silent");

const named = plot => plot.getAttribute("aria-label");

// Puts what the server knows in the place of what is shown; figures that are drawn keep their zoom.
function showState(state) {
  now.innerHTML = state.now;
  for (const html of state.plots) {
    const made = document.createElement("template");
    made.innerHTML = html;
    const figure = made.content.firstElementChild, plot = figure.querySelector(".plot");
    const shown = plots.find(each => named(each) === named(plot));
    if (!shown) {
      document.querySelector(".plots").append(figure);
      plots.push(plot);
      watch.observe(plot);
    } else if (shown.nextElementSibling.textContent !== plot.nextElementSibling.textContent) {
      shown.style.height = plot.style.height;
      shown.nextElementSibling.textContent = plot.nextElementSibling.textContent;
      if (shown.dataset.drawn) queue = queue.then(() => draw(shown));
    }
  }
}

async function follow() {
  try {
    const answer = await fetch("state", {cache: "no-store"});
    if (!answer.ok) throw new Error(answer.statusText);
    showState(await answer.json());
    silent.hidden = true;
  } catch {
    silent.hidden = false;
  }
  setTimeout(follow, PAUSE);
}
follow();

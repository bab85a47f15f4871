// SPDX-License-Identifier: Apache-2.0 OR MIT
// A time cursor that all plots over the window share, and zoom. The page says everything without it.
"use strict";
(() => {
  const svg = "http://www.w3.org/2000/svg";
  const make = (parent, name, attributes) => {
    const it = document.createElementNS(svg, name);
    for (const [key, value] of Object.entries(attributes)) it.setAttribute(key, value);
    return parent.appendChild(it);
  };
  const plots = [...document.querySelectorAll("svg.time")].map((it) => {
    const inner = it.querySelector("svg.span");
    const box = inner.viewBox.baseVal;
    const [left, width, height] = [box.x, box.width, box.height];
    const tick = it.querySelector("text.tick");
    const grid = it.querySelector("line.grid.tick");
    const cursor = make(it, "line", { class: "cursor", y1: 0, y2: height, visibility: "hidden" });
    const time = make(it, "text", { y: height + 16, "text-anchor": "middle", visibility: "hidden" });
    const seconds = Number(it.dataset.seconds);
    return { it, inner, left, width, height, tick, grid, cursor, time, seconds };
  });
  const all = Math.max(0, ...plots.map((plot) => plot.seconds));
  if (!(all > 0)) return;
  let [from, until, pressed] = [0, all, null];

  const round = (t) => Math.round(t * 1e4) / 1e4;
  const place = (plot, t) => plot.left + ((t - from) / (until - from)) * plot.width;
  const timeAt = (plot, event) => {
    const box = plot.it.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * plot.it.viewBox.baseVal.width;
    const part = Math.min(1, Math.max(0, (x - plot.left) / plot.width));
    return from + part * (until - from);
  };
  const point = (t) => {
    for (const plot of plots) {
      const seen = t !== null && t >= from && t <= Math.min(until, plot.seconds);
      for (const it of [plot.cursor, plot.time]) it.setAttribute("visibility", seen ? "visible" : "hidden");
      if (!seen) continue;
      const x = place(plot, t);
      for (const [key, value] of [["x1", x], ["x2", x]]) plot.cursor.setAttribute(key, value);
      plot.time.setAttribute("x", x);
      plot.time.textContent = `${round(t).toFixed(until - from < 5 ? 3 : 1)} s`;
    }
  };
  // Round times: 1, 2 or 5 times a power of ten apart, about eight of them.
  const ticks = () => {
    const rough = (until - from) / 8;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((it) => it * power).find((it) => it >= rough);
    const marks = [];
    for (let i = Math.ceil(from / step); i * step <= until && marks.length < 12; i++) marks.push(round(i * step));
    return marks;
  };
  const show = () => {
    for (const plot of plots) {
      const scale = plot.width / plot.seconds;
      const [x, width] = [plot.left + from * scale, (until - from) * scale];
      plot.inner.setAttribute("viewBox", `${x} 0 ${width} ${plot.height}`);
      if (!plot.tick || !plot.grid) continue;
      plot.it.querySelectorAll(":scope > .tick").forEach((it) => it.remove());
      for (const t of ticks()) {
        const at = place(plot, t);
        const line = plot.grid.cloneNode();
        for (const key of ["x1", "x2"]) line.setAttribute(key, at);
        plot.it.insertBefore(line, plot.it.firstChild);
        const text = plot.tick.cloneNode();
        text.setAttribute("x", at);
        text.textContent = `${t} s`;
        plot.it.appendChild(text);
      }
    }
    point(null);
  };
  const zoom = (a, b) => {
    const least = Math.min(all, 0.05);
    const length = Math.max(least, Math.min(all, b - a));
    from = Math.min(Math.max(0, a), all - length);
    until = from + length;
    show();
  };
  for (const plot of plots) {
    plot.it.tabIndex = 0;
    plot.it.addEventListener("pointermove", (event) => point(timeAt(plot, event)));
    plot.it.addEventListener("pointerleave", () => point(null));
    plot.it.addEventListener("pointerdown", (event) => {
      if (event.button === 0) pressed = { plot, t: timeAt(plot, event), x: event.clientX };
    });
    plot.it.addEventListener("dblclick", () => zoom(0, all));
    plot.it.addEventListener("keydown", (event) => {
      const [middle, length] = [(from + until) / 2, until - from];
      const keys = {
        "+": () => zoom(middle - length / 4, middle + length / 4),
        "-": () => zoom(middle - length, middle + length),
        ArrowLeft: () => zoom(from - length / 4, until - length / 4),
        ArrowRight: () => zoom(from + length / 4, until + length / 4),
        Escape: () => zoom(0, all),
      };
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key]();
    });
  }
  addEventListener("pointerup", (event) => {
    if (pressed && Math.abs(event.clientX - pressed.x) > 5) {
      const t = timeAt(pressed.plot, event);
      zoom(Math.min(t, pressed.t), Math.max(t, pressed.t));
      getSelection()?.removeAllRanges();
    }
    pressed = null;
  });
  if (plots.some((plot) => plot.seconds !== all)) show();
  for (const it of document.querySelectorAll(".zoom")) it.hidden = false;
})();

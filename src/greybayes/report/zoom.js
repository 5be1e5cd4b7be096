"use strict";
// Zoom in time: drag, wheel after a click (or with Ctrl), Shift and drag to move, double-click to
// see all; with the keyboard + - and the arrows, 0 to see all. All panels of a figure move together.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const make = (tag, attributes, parent) => {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    parent.append(node);
    return node;
  };

  // About eight round numbers between two ends.
  const ticks = (first, last) => {
    const rough = (last - first) / 8;
    const unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * [1, 2, 5, 10].find((each) => each * unit >= rough);
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const found = [];
    for (let k = Math.ceil(first / step); k * step <= last; k++) {
      found.push([k * step, (k * step).toFixed(Math.min(digits, 12))]);
    }
    return found;
  };

  // A panel of time: its curves in a frame that stays, and its ticks.
  const panel = (group) => {
    const box = Object.fromEntries(
      ["first", "last", "left", "right", "top", "bottom", "labels"].map((name) => [name, Number(group.dataset[name])]),
    );
    const drawn = [...group.querySelectorAll(".ticks-x")];
    const curves = [...group.querySelectorAll("[clip-path]")].filter((each) => !each.closest(".ticks-x, .ticks-y"));
    const [dots, lines] = [[], []];
    for (const curve of curves) {
      const frame = document.createElementNS(SVG, "g");
      frame.setAttribute("clip-path", curve.getAttribute("clip-path"));
      curve.removeAttribute("clip-path");
      curve.replaceWith(frame);
      frame.append(curve);
      const paths = curve.matches("path") ? [curve] : curve.querySelectorAll("path");
      lines.push(...[...paths].map((path) => [path, parseFloat(getComputedStyle(path).strokeWidth) || 0]));
      // Dots move and keep their shape; a curve or an area is drawn from 0.
      const placed = [...curve.querySelectorAll("use")].filter((use) => Number(use.getAttribute("x")));
      dots.push(...placed.map((use) => [use, Number(use.getAttribute("x"))]));
      if (!placed.length) curve.dataset.scales = "1";
    }
    const own = make("g", {}, group);
    const show = (first, last) => {
      const scale = (box.last - box.first) / (last - first);
      const perUnit = (box.right - box.left) / (last - first);
      const moved = box.left - scale * (box.left + ((first - box.first) * (box.right - box.left)) / (box.last - box.first));
      const all = scale === 1;
      for (const [dot, x] of dots) dot.setAttribute("x", all ? x : scale * x + moved);
      for (const curve of curves) {
        if (all || !curve.dataset.scales) curve.removeAttribute("transform");
        else curve.setAttribute("transform", `matrix(${scale} 0 0 1 ${moved} 0)`);
      }
      // Lines keep their width on the screen, however much the curve is stretched.
      const size = group.ownerSVGElement.getScreenCTM().a;
      for (const [line, width] of lines) {
        line.classList.toggle("zoomed", !all);
        line.style.strokeWidth = all ? width : width * size;
      }
      for (const tick of drawn) tick.style.display = all ? "" : "none";
      own.replaceChildren();
      if (all) return;
      for (const [value, text] of ticks(first, last)) {
        const x = box.left + (value - first) * perUnit;
        make("path", { d: `M${x} ${box.top}V${box.bottom}`, stroke: "var(--grid)", "stroke-width": 0.6 }, own);
        make("path", { d: `M${x} ${box.bottom}v3.5`, stroke: "var(--ink)", "stroke-width": 0.8 }, own);
        if (box.labels) {
          const label = make("text", { x, y: box.bottom + 14.6, "text-anchor": "middle", "font-size": 10 }, own);
          label.textContent = text;
        }
      }
      group.insertBefore(own, group.children[1] ?? null);
    };
    return { box, show };
  };

  for (const svg of document.querySelectorAll("svg")) {
    const panels = [...svg.querySelectorAll("g.time")].map(panel);
    if (!panels.length) continue;
    svg.classList.add("zoomable");
    svg.parentElement.querySelector(".hint")?.removeAttribute("hidden");
    const { box } = panels[0];
    let [first, last] = [box.first, box.last];
    const show = (from, to) => {
      const width = Math.min(Math.max(to - from, (box.last - box.first) * 1e-4), box.last - box.first);
      first = Math.min(Math.max(from, box.first), box.last - width);
      last = first + width;
      if (width >= (box.last - box.first) * 0.999) [first, last] = [box.first, box.last];
      for (const each of panels) each.show(first, last);
    };
    const zoom = (factor, at) => show(at - (at - first) * factor, at + (last - at) * factor);
    const x = (event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse()).x;
    const time = (event) => {
      const share = (x(event) - box.left) / (box.right - box.left);
      return first + Math.min(Math.max(share, 0), 1) * (last - first);
    };

    svg.addEventListener("wheel", (event) => {
      // The page scrolls past a figure that nobody has clicked on.
      if (!event.ctrlKey && document.activeElement !== svg) return;
      event.preventDefault();
      zoom(Math.exp(Math.sign(event.deltaY) * 0.25), time(event));
    }, { passive: false });

    let held = null;
    let mark = null;
    svg.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch") return;
      event.preventDefault();
      svg.focus({ preventScroll: true });
      svg.setPointerCapture(event.pointerId);
      held = { at: time(event), x: x(event), first, last, moves: event.shiftKey };
    });
    svg.addEventListener("pointermove", (event) => {
      if (!held) return;
      if (held.moves) {
        const by = ((x(event) - held.x) / (box.right - box.left)) * (held.last - held.first);
        show(held.first - by, held.last - by);
        return;
      }
      mark ??= make("g", {}, svg);
      const [from, to] = [held.x, x(event)].map((each) => Math.min(Math.max(each, box.left), box.right)).sort((a, b) => a - b);
      mark.replaceChildren();
      for (const { box: each } of panels) {
        make("rect", { class: "chosen", x: from, width: to - from, y: each.top, height: each.bottom - each.top }, mark);
      }
    });
    const release = (event) => {
      if (!held) return;
      const [start, wide] = [held, Math.abs(x(event) - held.x) > 4];
      held = null;
      mark?.remove();
      mark = null;
      if (event.type === "pointerup" && wide && !start.moves) {
        const [from, to] = [start.at, time(event)].sort((a, b) => a - b);
        show(from, to);
      }
    };
    svg.addEventListener("pointerup", release);
    svg.addEventListener("pointercancel", release);
    svg.addEventListener("dblclick", () => show(box.first, box.last));
    svg.addEventListener("keydown", (event) => {
      const step = (last - first) / 4;
      const does = {
        "+": () => zoom(0.5, (first + last) / 2),
        "=": () => zoom(0.5, (first + last) / 2),
        "-": () => zoom(2, (first + last) / 2),
        0: () => show(box.first, box.last),
        ArrowLeft: () => show(first - step, last - step),
        ArrowRight: () => show(first + step, last + step),
      }[event.key];
      if (!does || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      does();
    });
  }
})();

// What the page of a run shows, as the browser has laid it out.
(() => {
  const round = (value) => Math.round(value * 100) / 100;
  const box = (element) => {
    const { left, right, top, bottom } = element.getBoundingClientRect();
    return [left, right, top + scrollY, bottom + scrollY].map(round);
  };
  const isShown = (element) => element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length > 0;
  const origin = (element) => {
    const matrix = element.getScreenCTM();
    return [round(matrix.e), round(matrix.f + scrollY)];
  };
  const luminance = (colour) => {
    const parts = colour.match(/[\d.]+/g).slice(0, 3).map((part) => {
      const share = part / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const background = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = getComputedStyle(each).backgroundColor;
      if (!/, 0\)$/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  const contrast = (element) => {
    const style = getComputedStyle(element);
    const [one, other] = [element instanceof SVGElement ? style.fill : style.color, background(element)].map(luminance);
    return round((Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05));
  };
  const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());

  const plots = [...document.querySelectorAll("svg.plot")].filter(isShown).map((plot) => ({
    name: plot.getAttribute("aria-labelledby").split(" ")[0].replace(/-title$/, ""),
    frame: box(plot.closest("figure")),
    texts: [...plot.querySelectorAll("text")].map((text) => ({ text: text.textContent, box: box(text) })),
    ticks: [...plot.querySelectorAll("text.tick")].map((text) => ({
      axis: text.classList.contains("x") ? "x" : "y", text: text.textContent, box: box(text),
    })),
    marks: [...plot.querySelectorAll("svg.at[data-series]")].map((mark) => ({
      series: mark.dataset.series, place: origin(mark.firstElementChild),
    })),
    bars: [...plot.querySelectorAll("rect[data-series]")].map((bar) => ({ series: bar.dataset.series, box: box(bar) })),
    area: [
      box(plot)[0] + parseFloat(getComputedStyle(plot).paddingLeft),
      box(plot)[1] - parseFloat(getComputedStyle(plot).paddingRight),
    ],
    intervals: [...plot.querySelectorAll("line.interval")].map(box),
  }));
  const lines = [...document.querySelectorAll("body *")].filter(
    (element) => isShown(element) && hasText(element) && !element.closest(".hidden, .skip, title, desc"),
  );
  return {
    width: [document.documentElement.scrollWidth, innerWidth],
    plots,
    outside: [...document.querySelectorAll("body *")]
      .filter((element) => isShown(element) && !element.closest(".scroll, .skip, .patterns, .hidden"))
      .filter((element) => element.getBoundingClientRect().right > innerWidth + 0.5 || element.getBoundingClientRect().left < -0.5)
      .map((element) => element.outerHTML.slice(0, 120)),
    cut: [...lines, ...document.querySelectorAll("section .scroll")]
      .filter((element) => isShown(element) && !(element instanceof SVGElement) && !element.closest("details"))
      .filter((element) => element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).display !== "inline")
      .map((element) => element.outerHTML.slice(0, 120)),
    faint: lines.filter((element) => contrast(element) < 4.5).map((element) => `${contrast(element)} ${element.outerHTML.slice(0, 120)}`),
    broken: [...document.querySelectorAll("#outcomes th, #failures th")]
      .flatMap((cell) => [...cell.textContent.matchAll(/\S+/g)].map((word) => {
        const range = document.createRange();
        range.setStart(cell.firstChild, word.index);
        range.setEnd(cell.firstChild, word.index + word[0].length);
        return { word: word[0], lines: new Set([...range.getClientRects()].map((each) => each.top)).size };
      }))
      .filter(({ lines }) => lines > 1)
      .map(({ word }) => word),
    lines: lines.length,
    sizes: Math.min(...lines.map((element) => parseFloat(getComputedStyle(element).fontSize))),
  };
})();

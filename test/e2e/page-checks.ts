/** Checks of a page, as expressions that the browser evaluates in it. */

/** The contrast of two colours, read from a canvas, which accepts all notations. */
const CONTRAST = `
  for (const moving of document.getAnimations()) moving.finish?.call && moving instanceof CSSTransition && moving.finish();
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = 1;
  const ink = canvas.getContext('2d', { willReadFrequently: true });
  const over = (below, color) => {
    ink.clearRect(0, 0, 1, 1);
    ink.fillStyle = 'rgb(' + below.join(' ') + ')';
    ink.fillRect(0, 0, 1, 1);
    ink.fillStyle = color;
    ink.fillRect(0, 0, 1, 1);
    return [...ink.getImageData(0, 0, 1, 1).data.slice(0, 3)];
  };
  const behind = (element) => element === null ? [255, 255, 255]
    : over(behind(element.parentElement), getComputedStyle(element).backgroundColor);
  const light = (rgb) => rgb
    .map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (ground, color) => {
    const [a, b] = [light(over(ground, color)), light(ground)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
`;

/** Texts with a contrast to their background below 4.5 (WCAG 2, AA). */
export const lowContrast = `(() => {
  ${CONTRAST}
  const low = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walk.nextNode(); text; text = walk.nextNode()) {
    const element = text.parentElement;
    if (text.textContent.trim() === '' || !element.checkVisibility() || element.closest('script, noscript')) continue;
    const ratio = contrast(behind(element), getComputedStyle(element).color);
    if (ratio < 4.5) low.push(element.tagName + '.' + element.className + ' ' + ratio.toFixed(2) + ' ' + text.textContent);
  }
  return low;
})()`;

/** Edges of seats and backgrounds of bars with a contrast to their background below 3 (WCAG 2.1, 1.4.11), each once. */
export const paleShapes = `(() => {
  ${CONTRAST}
  const pale = new Set();
  const look = (selector, colorOf) => {
    for (const shape of document.querySelectorAll(selector)) {
      const ratio = contrast(behind(shape.parentElement), colorOf(getComputedStyle(shape)));
      if (ratio < 3) pale.add(selector + ' ' + (shape.dataset.state ?? '') + ' ' + ratio.toFixed(2));
    }
  };
  look('.seat', (style) => style.borderTopColor);
  look('.bar i', (style) => style.backgroundColor);
  return [...pale];
})()`;

/** Touch targets that are less than 24 CSS pixels high or wide (WCAG 2.2, 2.5.8). Links within text are exempt. */
export const underAim = `[...document.querySelectorAll('button, input, label')]
  .filter((each) => each.checkVisibility())
  .map((each) => [each, each.getBoundingClientRect()])
  .filter(([, { width, height }]) => width < 24 || height < 24)
  .map(([each]) => each.outerHTML)`;

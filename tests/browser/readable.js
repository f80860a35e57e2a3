// Run in a page by `test_looks.py`: texts with too little contrast (WCAG AA), and controls and landmarks without a name.
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

  function rgba(colour) {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  }

  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3]));

  function luminance(rgb) {
    const [r, g, b] = rgb.map((part) => part / 255)
      .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }

  function lineage(node) {
    return node ? [...lineage(node.parentElement), node] : [];
  }

  function contrast(node) {
    const styles = lineage(node).map((each) => getComputedStyle(each));
    const ground = styles.reduce((under, style) => over(rgba(style.backgroundColor), under), [255, 255, 255]);
    const alpha = styles.reduce((product, style) => product * Number(style.opacity), 1);
    const [r, g, b, a] = rgba(styles.at(-1).color);
    const [dark, light] = [luminance(over([r, g, b, a * alpha], ground)), luminance(ground)].sort((x, y) => x - y);
    return (light + 0.05) / (dark + 0.05);
  }

  function needed(style) {
    const size = parseFloat(style.fontSize);
    return size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
  }

  const faint = [];
  let texts = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim();
    const node = walker.currentNode.parentElement;
    if (!text || !node.checkVisibility({ visibilityProperty: true }) || node.closest(".unseen, .skip")) continue;
    texts += 1;
    const ratio = contrast(node);
    if (ratio < needed(getComputedStyle(node))) faint.push(`${ratio.toFixed(2)} ${node.className}: ${text.slice(0, 40)}`);
  }

  const named = (node) => node.ariaLabel || node.labels?.length || (node.matches("button, a") && node.textContent.trim())
    || document.getElementById(node.getAttribute("aria-labelledby"));
  const kinds = "button, a, input, textarea, form, aside, nav, article, .items, [role=region], [role=group], [role=log]";
  const nameless = [...document.querySelectorAll(kinds)]
    .filter((node) => node.checkVisibility() && !named(node))
    .map((node) => node.outerHTML.slice(0, 80));
  return { texts, faint, nameless };
}

// What is not in its place: boxes wider than the page, texts that leave the card they stand in, and what is cut without
// a sign. To be evaluated on a page, at any width.
() => {
  const wide = Math.min(innerWidth, screen.width);
  const found = document.documentElement.scrollWidth > wide ? ["the page scrolls sideways"] : [];
  const called = (node) => `${node.parentElement?.className} > ${node.tagName.toLowerCase()}.${node.className}`;
  const shown = (node) => node.checkVisibility({ contentVisibilityAuto: true, visibilityProperty: true })
    && !node.closest("svg, select, textarea, .unseen, .skip, .gutter");
  const holder = (node, is) => {
    for (let each = node; each; each = each.parentElement) if (is(getComputedStyle(each))) return each;
    return null;
  };
  const isCard = (style) => style.overflowX !== "visible" || parseFloat(style.borderTopWidth) > 0;
  for (const node of [...document.body.querySelectorAll("*")].filter(shown)) {
    const style = getComputedStyle(node);
    const [across, down] = [node.scrollWidth > node.clientWidth + 1, node.scrollHeight > node.clientHeight + 1];
    const hasSign = style.textOverflow === "ellipsis" || style.webkitLineClamp !== "none";
    if (style.overflowX === "hidden" && across && !hasSign && node.textContent.trim()) found.push(`cut across: ${called(node)}`);
    if (style.overflowY === "hidden" && down && !hasSign && !node.matches(".folded.cut")) found.push(`cut below: ${called(node)}`);
    if (node.matches(".payload, .folded, dd") && style.overflowY !== "visible" && down) {
      const near = node.parentElement.parentElement.querySelectorAll(".fold");
      if (![...near].some((each) => each.checkVisibility())) found.push(`long, and nothing opens it: ${called(node)}`);
    }
    for (const text of node.childNodes) {
      if (text.nodeType !== Node.TEXT_NODE || !text.textContent.trim()) continue;
      const card = holder(node, isCard)?.getBoundingClientRect() ?? { left: 0, right: wide };
      const range = document.createRange();
      range.selectNodeContents(text);
      const out = [...range.getClientRects()].some((box) => box.width && (box.right > card.right + 1 || box.left < card.left - 1));
      if (out && !hasSign && !["auto", "hidden"].includes(holder(node, isCard) && getComputedStyle(holder(node, isCard)).overflowX)) {
        found.push(`leaves its card: ${called(node)}`);
      }
    }
  }
  return [...new Set(found)];
}

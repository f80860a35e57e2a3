// The search box and the copy buttons of the guide; without this file every page can still be read.
// The index is fetched when somebody searches for the first time. Text only ever goes in as text.

const MOST = 12;
const AROUND = 70;
const box = document.getElementById("search");
const results = document.getElementById("results");
const announcer = document.getElementById("announcer");
let index = null;

async function sections() {
  if (!index) {
    const answer = await fetch("/docs/search.json");
    if (!answer.ok) throw new Error(`the index answered ${answer.status}`);
    index = (await answer.json()).map((each) => ({
      ...each, titles: `${each.title} ${each.heading}`.toLowerCase(), words: each.text.toLowerCase(),
    }));
  }
  return index;
}

/** The sections that hold every word, best first: words in headings count more, and more at their start. */
function find(all, words) {
  const found = [];
  for (const section of all) {
    let score = 0;
    for (const word of words) {
      const inTitles = section.titles.includes(word);
      if (!inTitles && !section.words.includes(word)) { score = 0; break; }
      score += inTitles ? (` ${section.titles}`.includes(` ${word}`) ? 8 : 4) : 1;
      if (section.heading.toLowerCase() === word) score += 8;
    }
    if (score) found.push([score, section]);
  }
  return found.sort((one, other) => other[0] - one[0]).map(([, section]) => section);
}

/** `text` in pieces: the words that were asked for as <mark>, the rest as it is. */
function marked(text, words) {
  const lower = text.toLowerCase();
  const nodes = [];
  let at = 0;
  while (at < text.length) {
    const next = words.map((word) => [lower.indexOf(word, at), word.length]).filter(([place]) => place >= 0)
      .sort((one, other) => one[0] - other[0] || other[1] - one[1])[0];
    if (!next) break;
    nodes.push(text.slice(at, next[0]), node("mark", text.slice(next[0], next[0] + next[1])));
    at = next[0] + next[1];
  }
  return [...nodes, text.slice(at)];
}

function node(tag, ...children) {
  const made = document.createElement(tag);
  made.append(...children);
  return made;
}

function excerpt(section, words) {
  const first = Math.min(...words.map((word) => section.words.indexOf(word)).filter((place) => place >= 0), section.words.length);
  const begin = first === section.words.length ? 0 : Math.max(0, first - AROUND);
  const end = begin + 2 * AROUND;
  return `${begin ? "…" : ""}${section.text.slice(begin, end)}${end < section.text.length ? "…" : ""}`;
}

function entry(section, words) {
  const link = node("a", node("strong", ...marked(section.heading, words)));
  if (section.title !== section.heading) link.append(node("small", section.title));
  link.append(node("span", ...marked(excerpt(section, words), words)));
  link.href = section.path;
  link.addEventListener("click", close);
  return node("li", link);
}

function close() {
  results.hidden = true;
  results.replaceChildren();
  announcer.textContent = "";
}

async function search() {
  const query = box.value.trim().toLowerCase();
  if (!query) return close();
  const words = [...new Set(query.split(/\s+/))];
  let said;
  try {
    const found = find(await sections(), words);
    if (box.value.trim().toLowerCase() !== query) return undefined;
    said = found.length ? `${found.length} ${found.length === 1 ? "place" : "places"}` : "Nothing was found";
    results.replaceChildren(node("p", found.length > MOST ? `${said}; the best ${MOST}` : said),
      node("ol", ...found.slice(0, MOST).map((section) => entry(section, words))));
  } catch {
    said = "The search index cannot be fetched";
    results.replaceChildren(node("p", said));
  }
  results.hidden = false;
  announcer.textContent = said;
  return undefined;
}

function walk(step) {
  const links = [...results.querySelectorAll("a")];
  const place = links.indexOf(document.activeElement) + step;
  (place < 0 ? box : links[Math.min(place, links.length - 1)])?.focus();
}

box.closest("search").hidden = false;
box.addEventListener("input", search);
box.addEventListener("keydown", async (event) => {
  if (event.key !== "Enter") return;
  await search();
  results.querySelector("a")?.click();
});
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/" && document.activeElement !== box) {
    event.preventDefault();
    box.focus();
    box.select();
  }
  if (results.hidden) return;
  if (event.key === "Escape") {
    close();
    box.focus();
  }
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    walk(event.key === "ArrowDown" ? 1 : -1);
  }
});
addEventListener("click", (event) => {
  if (!event.target.closest("search, #results")) close();
});

// Copying works where the browser allows it: on this machine, and over https.
for (const code of navigator.clipboard ? document.querySelectorAll("pre") : []) {
  if (["text", "json", "diff"].includes(code.dataset.language)) continue;
  const button = node("button", "Copy");
  button.type = "button";
  button.className = "quiet copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
      announcer.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
  const frame = document.createElement("div");
  frame.className = "code";
  code.before(frame);
  frame.append(code, button);
}

// The console's shell: login, the bar, how fresh the page is, what is halted, and which room is open. Knows nothing of
// any room.

import { announce, clearNotices, el, notice } from "./dom.js";
import { makeFreshness } from "./fresh.js";
import { watchHalts } from "./halts.js";
import { ask, field } from "./page.js";
import { ROOMS } from "./rooms.js";
import * as service from "./service.js";

const NAME = "Agent Governance";
const LONGEST_GATHERING = 1000;
const FRESHNESS = {
  connecting: ["Connecting…", ""],
  live: ["Live", ""],
  polling: ["Updating every few seconds", ""],
  away: ["Not connected", "The service cannot be reached. What you see may be out of date; this page goes on trying and recovers by itself."],
};

const root = document.getElementById("room");
const bar = document.querySelector(".bar");
const away = document.querySelector(".away");
let close = () => {};
let expiry = null;
/** What lasts as long as somebody is logged in: `{key, stop, keep, halting}`. */
let login = null;

const keyOf = (session) => session ? `${session.user.role} ${session.token}` : undefined;

function show({ moveFocus = false, why = "" } = {}) {
  close();
  close = () => {};
  clearTimeout(expiry);
  for (const box of document.querySelectorAll("dialog")) box.close(); // of what is gone
  root.replaceChildren();
  const current = service.session.value;
  bar.hidden = !current;
  if (login?.key !== keyOf(current)) begin(current);
  if (!current) return showLogin(why);
  // Timers beyond 24.8 days fire at once; the service refuses an old token anyway.
  expiry = setTimeout(service.lost, Math.min(current.until - Date.now(), 2 ** 31 - 1));
  const allowed = ROOMS.filter((room) => room.roles.includes(current.user.role));
  const asked = ROOMS.find((each) => `${location.pathname}/`.startsWith(`${each.path}/`)) ?? allowed[0];
  const room = allowed.includes(asked) ? asked : null;
  bar.querySelector(".who").textContent = `${current.user.email} · ${current.user.role}`;
  bar.querySelector("nav").replaceChildren(...allowed.map((each) =>
    el("a", { href: each.path, "aria-current": each === room ? "page" : null, onclick: follow }, each.title)));
  bar.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  if (!room) return showNothing(asked, current.user, moveFocus);
  setTitle(room.title);
  open(room, current.user, moveFocus);
  return undefined;
}

/**
 * A room gets: `service` (service.js); `notice` and `announce` (dom.js); `user` `{email, role}`; `moveFocus`, whether it
 * puts the focus on its heading; `place`, what follows the room's path in the address, decoded; `keepFresh(load, topics,
 * signal, pause)` (fresh.js); `halts()`, those in force, the window's event `governance:halts` telling of changes, and
 * for admins `halt(agentId)` and `resume()`;
 * `go(address)` to another place of the console, `follow`, the click handler of links that do so; `setTitle(prefix)`.
 */
async function open(room, user, moveFocus) {
  const now = new AbortController();
  close = () => now.abort();
  let module;
  try {
    [module] = await Promise.all([room.load(), styled(room.style)]);
  } catch {
    if (!now.signal.aborted) showUnloaded();
    return;
  }
  if (now.signal.aborted) return;
  const gathered = gather(now.signal);
  const leave = module.open(root, {
    service, notice, announce, user, moveFocus, go, follow,
    keepFresh: gathered.keepFresh,
    ...login.halting,
    place: decoded(location.pathname.slice(room.path.length + 1)),
    setTitle: (prefix = "") => setTitle(`${prefix}${room.title}`),
  });
  close = () => {
    now.abort();
    leave();
  };
  gathered.stands();
}

/** Below its heading a page is seen when all that it loads at first is there, or after a while: so nothing on it jumps. */
function gather(signal) {
  let left = 1; // the room itself, until it stands
  const reveal = () => !signal.aborted && root.classList.remove("coming");
  const done = () => {
    left -= 1;
    if (!left) reveal();
  };
  root.classList.add("coming");
  setTimeout(reveal, LONGEST_GATHERING);
  return {
    stands: done,
    keepFresh(load, ...how) {
      let first = true;
      left += 1;
      return login.keep(async () => {
        try {
          await load();
        } finally {
          if (first) done();
          first = false;
        }
      }, ...how);
    },
  };
}

/** Waits until what a room is styled by is there, beside what all are styled by. */
async function styled(href) {
  if (!href || document.querySelector(`link[href="${href}"]`)) return;
  await new Promise((resolve, reject) => {
    document.head.append(el("link", { rel: "stylesheet", href, onload: resolve, onerror: reject }));
  });
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Somebody else is logged in than before, or nobody. */
function begin(current) {
  login?.stop.abort();
  setFreshness(null);
  login = null;
  if (!current) return;
  const stop = new AbortController();
  const keep = makeFreshness(setFreshness, stop.signal);
  login = { key: keyOf(current), stop, keep };
  login.halting = watchHalts({
    banner: document.querySelector(".halted"), place: bar.querySelector(".switch"),
    service, user: current.user, keep, signal: stop.signal,
  });
}

function showUnloaded() {
  root.append(el("section.card.narrow", {}, el("h1", { tabIndex: -1 }, "This page could not be loaded"),
    el("p", {}, "The service cannot be reached, or was updated meanwhile."),
    el("button.primary", { type: "button", onclick: () => location.reload() }, "Load it again")));
}

function setTitle(text) {
  document.title = `${text} · ${NAME}`;
}

/** How fresh the open room is: a key of FRESHNESS, or null when there is nothing to say. */
function setFreshness(state) {
  const [text, warning] = FRESHNESS[state] ?? ["", ""];
  const live = bar.querySelector(".live");
  if (live.textContent !== text) live.textContent = text;
  live.dataset.state = state ?? "";
  away.hidden = !warning;
  if (away.textContent !== warning) away.textContent = warning;
}

function follow(event) {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  go(event.currentTarget.getAttribute("href"));
}

function go(address) {
  history.pushState(null, "", address);
  show({ moveFocus: true });
  scrollTo(0, 0);
}

function showNothing(room, user, moveFocus) {
  setTitle("No access");
  const heading = el("h1", { tabIndex: -1 }, "This needs another role");
  root.append(el("section.card.narrow", {}, heading,
    el("p", {}, "You are logged in as ", el("strong", {}, user.email), ", with the role ", el("strong", {}, user.role), "."),
    el("p", {}, `${room.title}: this room is for the ${room.roles.length > 1 ? "roles" : "role"} ${room.roles.join(" and ")}. An admin can change yours; after that, reload this page.`),
    el("button.primary", { type: "button", onclick: logOut }, "Log in as somebody else")));
  if (moveFocus) heading.focus();
}

function showLogin(why) {
  setTitle("Log in");
  const problem = el("p.problem", { id: "login-problem", role: "alert" });
  const email = el("input", { id: "email", type: "email", autocomplete: "username", required: true, spellcheck: false });
  const password = el("input", { id: "password", type: "password", autocomplete: "current-password", required: true });
  const button = el("button.primary", { type: "submit" }, "Log in");
  async function onsubmit(event) {
    event.preventDefault();
    button.disabled = true;
    problem.textContent = "";
    try {
      await service.login(email.value.trim(), password.value);
      clearNotices();
      show({ moveFocus: true });
    } catch (error) {
      problem.textContent = explain(error);
      (error.status === 401 ? password : button).focus();
      if (error.status === 401) password.select();
    } finally {
      button.disabled = false;
    }
  }
  root.append(el("form.card.narrow", { onsubmit, "aria-labelledby": "login-title" },
    el("img", { src: "/console/icon.svg", alt: "", width: 40, height: 40 }),
    el("h1", { id: "login-title" }, NAME),
    why ? el("p.why-login", { role: "status" }, why) : el("p.hint", {}, "Log in to review what agents ask for."),
    el("label", { htmlFor: "email" }, "E-mail"), email,
    el("label", { htmlFor: "password" }, "Password"), password,
    problem, button));
  email.focus();
}

function explain(error) {
  if (!(error instanceof service.Problem)) return "The service cannot be reached. Try again in a moment.";
  if (error.status === 401) return "The e-mail or the password is wrong.";
  if (error.status === 429) return `Too many tries. ${sentence(error.message)}`;
  if (error.status >= 500) return "The service is not well just now. Try again in a moment.";
  return sentence(error.message);
}

function sentence(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

function logOut() {
  close(); // while what a room still has to send can be sent
  close = () => {};
  service.session.clear();
  clearNotices();
  show();
}

function changePassword() {
  const [current, next] = [["current", "current-password"], ["next", "new-password"]].map(([name, autocomplete]) =>
    el("input", { id: `${name}-password`, type: "password", required: true, autocomplete }));
  ask("Your password", {
    hint: "Changing it ends every other session of yours.",
    fields: [field("Current password", current, { pointer: "/currentPassword" }), field("New password", next, { pointer: "/newPassword" })],
    verb: "Change",
    async submit() {
      const { value } = await service.request("POST", "/v1/password", { currentPassword: current.value, newPassword: next.value });
      service.renew(value);
      return () => {
        show();
        notice("Your password is changed.");
      };
    },
  });
}

// Whether the last that was done was done by pointer or by keys: a frame around what has the focus helps only with keys.
addEventListener("pointerdown", () => { document.documentElement.dataset.by = "pointer"; }, true);
addEventListener("keydown", () => { document.documentElement.dataset.by = "keys"; }, true);
document.getElementById("logout").addEventListener("click", logOut);
bar.querySelector(".who").addEventListener("click", changePassword);
addEventListener("governance:logged-out", () => show({ why: "Your session has ended. Log in again to go on where you were." }));
addEventListener("governance:changed-user", () => show({ moveFocus: true }));
addEventListener("storage", (event) => {
  // Logging in, or out, in one tab counts in all of them.
  if (event.key === service.KEY || event.key === null) show();
});
addEventListener("popstate", () => show());
show();

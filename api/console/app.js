// The console's shell: login, the bar, and which room is open. A room is a module in rooms/ with
// `{path, title, roles, open(root, context)}`; `open` returns a function that closes it. To add a room, list it.

import { el, notice } from "./dom.js";
import * as service from "./service.js";
import approvals from "./rooms/approvals.js";

const ROOMS = [approvals];

const root = document.getElementById("room");
const bar = document.querySelector(".bar");
let close = () => {};

function show() {
  close();
  close = () => {};
  root.replaceChildren();
  const current = service.session.value;
  bar.hidden = !current;
  if (!current) return showLogin();
  const allowed = ROOMS.filter((room) => room.roles.includes(current.user.role));
  const room = allowed.find((room) => location.pathname === room.path) ?? allowed[0];
  bar.querySelector(".who").textContent = `${current.user.email} · ${current.user.role}`;
  bar.querySelector("nav").replaceChildren(
    ...allowed.map((each) =>
      el("a", { href: each.path, "aria-current": each === room ? "page" : undefined, onclick: follow }, each.title)),
  );
  if (!room) {
    document.title = "Agent Governance";
    root.append(el("section.card.narrow", {}, el("h1", {}, "Nothing to do here"),
      el("p", {}, "Resolving approvals needs the role reviewer or admin. Ask an admin to change yours.")));
    return undefined;
  }
  document.title = `${room.title} · Agent Governance`;
  const live = bar.querySelector(".live");
  const setLive = (on) => {
    live.textContent = on ? "live" : "reconnecting…";
    live.classList.toggle("off", !on);
  };
  close = room.open(root, { service, user: current.user, notice, setLive });
  return undefined;
}

function follow(event) {
  event.preventDefault();
  history.pushState(null, "", event.currentTarget.getAttribute("href"));
  show();
}

function showLogin() {
  document.title = "Log in · Agent Governance";
  const problem = el("p.problem", { role: "alert", hidden: true });
  const email = el("input", { id: "email", type: "email", autocomplete: "username", required: true });
  const password = el("input", { id: "password", type: "password", autocomplete: "current-password", required: true });
  const button = el("button.primary", { type: "submit" }, "Log in");
  const form = el("form.card.narrow", {
    async onsubmit(event) {
      event.preventDefault();
      button.disabled = true;
      problem.hidden = true;
      try {
        await service.login(email.value, password.value);
        show();
      } catch (error) {
        problem.textContent = error instanceof service.Problem
          ? error.message : "The service cannot be reached. Try again in a moment.";
        problem.hidden = false;
        password.select();
      } finally {
        button.disabled = false;
      }
    },
  },
  el("h1", {}, "Agent Governance"),
  el("p.hint", {}, "Log in to review what agents ask for."),
  el("label", { htmlFor: "email" }, "E-mail"), email,
  el("label", { htmlFor: "password" }, "Password"), password,
  problem, button);
  root.append(form);
  email.focus();
}

document.getElementById("logout").addEventListener("click", () => {
  service.session.clear();
  show();
});
addEventListener("governance:logged-out", () => {
  notice("Your session has ended. Log in again.", "bad");
  show();
});
addEventListener("popstate", show);
show();

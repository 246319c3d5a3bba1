// The page of the routes, made from openapi.json without anything from another server.

import { key } from "./server.js";

// The page can be used while openapi.json is on its way, so the field is read when a request is sent.
const field = document.getElementById("api-key");
field.value ||= key.get();
const description = await (await fetch("openapi.json")).json();
document.getElementById("about").textContent = description.info.description;
document.getElementById("routes").replaceChildren(...sections());

function make(tag, { text, ...properties } = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  if (text !== undefined) element.textContent = text;
  element.append(...children);
  return element;
}

function sections() {
  const byTag = new Map();
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags?.[0] ?? "Other";
      byTag.set(tag, [...(byTag.get(tag) ?? []), route(method.toUpperCase(), path, operation)]);
    }
  }
  return [...byTag].flatMap(([tag, routes]) => [make("h2", { text: tag }), ...routes]);
}

function route(method, path, operation) {
  const forms = bodyForms(operation);
  const summary = make("summary", {}, make("span", { className: "method", text: method }),
    make("span", { className: "path", text: path }), make("span", { className: "brief", text: operation.description }));
  return make("details", { className: "route", id: `${method}${path}` }, summary,
    make("div", {}, ...forms.map(fields), trial(method, path, forms), answers(operation)));
}

function resolve(schema) {
  return schema?.$ref ? description.components.schemas[schema.$ref.split("/").pop()] : schema;
}

// The objects that a request may be: several if the route speaks several APIs.
function bodyForms(operation) {
  const schema = operation.requestBody?.content["application/json"].schema;
  if (!schema) return [];
  const whole = resolve(schema);
  return whole.properties ? [whole] : (whole.oneOf ?? whole.anyOf ?? [whole]).map(resolve);
}

function fields(form) {
  const rows = Object.entries(form.properties ?? {}).map(([name, field]) => make("tr", {},
    make("td", {}, make("code", { text: name })),
    make("td", { text: type(field) + (form.required?.includes(name) ? ", required" : "") }),
    make("td", { text: field.description ?? resolve(field).description ?? "" })));
  const head = make("tr", {}, ...["Field", "Type", "Meaning"].map((text) => make("th", { text })));
  return make("div", {}, make("p", { text: form.description ?? form.title ?? "" }), make("table", {}, head, ...rows));
}

function type(field) {
  const schema = resolve(field);
  const kinds = schema.anyOf ?? schema.oneOf;
  if (kinds) return [...new Set(kinds.map(type).filter((kind) => kind !== "null"))].join(" or ");
  if (schema.enum) return schema.enum.join(" or ");
  return schema.type === "array" ? `list of ${type(schema.items ?? {})}` : schema.type ?? "anything";
}

// A body with an example of each required field, or of the first fields that have one.
function example(form) {
  const named = Object.entries(form.properties ?? {});
  const required = named.filter(([name]) => form.required?.includes(name));
  const chosen = required.length ? required : named.slice(0, 2);
  return form.examples?.[0] ?? Object.fromEntries(chosen.map(([name, field]) => [name, value(field)]));
}

function value(field) {
  const schema = resolve(field);
  if (field.examples ?? schema.examples) return (field.examples ?? schema.examples)[0];
  const kind = (schema.anyOf ?? schema.oneOf)?.map(resolve)[0] ?? schema;
  if (kind.properties) return example(kind);
  return kind.type === "array" ? [value(kind.items ?? {})] : kind.type === "string" ? "how do whales breathe" : null;
}

function trial(method, path, forms) {
  const body = make("textarea", { rows: 6, spellcheck: false, ariaLabel: `Body of ${path}` });
  if (forms.length) body.value = JSON.stringify(example(forms[0]), null, 2);
  const name = path.match(/\{(.+)\}/)?.[1];
  const input = make("input", { placeholder: name ?? "", ariaLabel: name ?? "" });
  const shown = make("pre", { hidden: true });
  const button = make("button", { type: "button", text: "Send" });
  button.addEventListener("click", async () => {
    const headers = forms.length ? { "Content-Type": "application/json" } : {};
    key.set(field.value.trim());
    if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
    const url = path.replace(/\{.+\}/, encodeURIComponent(input.value)).slice(1) || ".";
    shown.hidden = false;
    try {
      const response = await fetch(url, { method, headers, body: forms.length ? body.value : undefined });
      shown.textContent = `${response.status}\n${readable(await response.text())}`;
    } catch {
      shown.textContent = "The server cannot be reached. Check that it is running, then try again.";
    }
  });
  return make("p", {}, ...(forms.length ? [body] : []), ...(name ? [input] : []), button, shown);
}

function readable(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function answers(operation) {
  const rows = Object.entries(operation.responses).map(([status, { description: meaning }]) =>
    make("tr", {}, make("td", { text: status }), make("td", { text: meaning })));
  return make("table", {}, make("tr", {}, make("th", { text: "Status" }), make("th", { text: "When" })), ...rows);
}

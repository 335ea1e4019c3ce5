import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { dirname, join } from "node:path";
import test, { type TestContext } from "node:test";
import { fileURLToPath } from "node:url";

import { folder } from "./server.js";

const root = fileURLToPath(new URL("../../", import.meta.url));

/** The example below a heading of the README. */
function example(heading: string): string {
  const readme = fs.readFileSync(join(root, "README.md"), "utf8");
  const [, text] = new RegExp(`\n## ${heading}\n[^]*?\`\`\`ts\n([^]*?)\`\`\``).exec(readme) ?? [];
  assert.ok(text, `the README has no example below ${heading}`);
  return text;
}

/** Compiles a program as a stranger would, who has installed the package, and returns where it is. */
function compile(t: TestContext, text: string): string {
  const at = folder(t);
  fs.mkdirSync(join(at, "node_modules/@types"), { recursive: true });
  fs.symlinkSync(root, join(at, "node_modules/payonce-client"));
  fs.symlinkSync(join(root, "node_modules/@types/node"), join(at, "node_modules/@types/node"));
  fs.symlinkSync(join(root, "node_modules/undici-types"), join(at, "node_modules/undici-types"));
  fs.writeFileSync(join(at, "package.json"), `{"type":"module"}`);
  fs.writeFileSync(join(at, "shop.ts"), text);
  execFileSync(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "--strict", "--target", "ES2022", "--module", "NodeNext",
    "--types", "node", "shop.ts"], { cwd: at, stdio: ["ignore", "inherit", "inherit"] });
  return join(at, "shop.js");
}

async function shop(t: TestContext): Promise<{ base: string; requests: IncomingMessage[] }> {
  const requests: IncomingMessage[] = [];
  const server = createServer((req, res) => {
    requests.push(req);
    req.resume().on("end", () => {
      res.writeHead(201, { "Content-Type": "application/json" });
      res.end(`{"id":"pay_1","object":"payment","status":"succeeded","order_id":"ord_17","payment_method":"pm_card_visa"}`);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  t.after(() => server.closeAllConnections());
  return { base: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, requests };
}

test("Readme/Node", async (t) => {
  const { base, requests } = await shop(t);
  const journal = join(folder(t), "intents");
  const program = compile(t, example("In Node").replace("https://pay.example.com", base).replace("/var/lib/shop/intents", journal));
  const { promisify } = await import("node:util");
  const { execFile } = await import("node:child_process");
  for (let i = 0; i < 2; i++) { // the second process has it from the journal
    const { stdout } = await promisify(execFile)(process.execPath, [program], { env: { ...process.env, API_KEY: "sk" } });
    assert.match(stdout, /^paid \{ id: 'pay_1'|^paid \{\n/);
  }
  assert.deepEqual(requests.map((q) => [q.url, q.headers.authorization]), [["/v1/payments", "Bearer sk"]]);
});

// The browser's example is only compiled here.
test("Readme/Browser", (t) => {
  const text = "declare const cart: { id: string; order: string; attempt: number; card: string };\n" + example("In a browser");
  const program = compile(t, text.replace('from "payonce-client";', 'from "payonce-client"; export {};'));
  assert.ok(fs.readFileSync(program, "utf8").includes("openIndexedDB"));
});

// Browsers get no module of Node: what index.js imports, and what that imports, is there without it.
test("BrowsersImportNothingOfNode", () => {
  const seen = new Set<string>();
  const visit = (path: string): void => {
    if (seen.has(path)) return;
    seen.add(path);
    for (const [, from] of fs.readFileSync(path, "utf8").matchAll(/from "([^"]+)"/g)) {
      assert.match(from!, /^\.\/\w+\.js$/, `${path} imports ${from}`);
      visit(join(dirname(path), from!));
    }
  };
  visit(join(root, "dist/src/index.js"));
  assert.ok(seen.size >= 8);
});

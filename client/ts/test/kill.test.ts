import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import * as fs from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import test from "node:test";
import { fileURLToPath } from "node:url";

import { folder, problem, Server } from "./server.js";

const intents = Number(process.env["INTENTS"] ?? 1000);
const worker = fileURLToPath(new URL("./worker.js", import.meta.url));

// Processes are killed while they pay, with SIGKILL, and their journal is cut in between, anywhere after the intents
// that it must not lose: each intent is charged once. The server loses responses and connections, and is slow.
for (const cut of [false, true]) {
  test(`KilledProcesses/${cut ? "JournalCut" : "JournalWhole"}`, async (t) => {
    const path = join(folder(t), "j");
    const api = new Server();
    let repeated = 0;
    const http = createServer((req, res) => {
      const parts: Buffer[] = [];
      req.on("data", (part: Buffer) => parts.push(part));
      req.on("end", () => {
        const fate = Math.random();
        if (fate < 0.03) return void req.socket.destroy();
        api.requests++;
        const response = fate < 0.06 ? new Response(problem(503, "unavailable"), { status: 503 })
          : api.execute(String(req.headers["idempotency-key"]), Buffer.concat(parts).toString());
        if (response.headers.has("Idempotent-Replayed")) repeated++;
        setTimeout(() => {
          if (fate > 0.97) return void req.socket.destroy();
          if (fate > 0.94) return void res.writeHead(500).end(problem(500, "internal"));
          void response.text().then((text) => {
            res.writeHead(response.status, Object.fromEntries(response.headers));
            if (fate < 0.90) return void res.end(text);
            res.write(text.slice(0, 9), () => req.socket.destroy());
          });
        }, Math.random() * 20);
      });
    });
    await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
    t.after(() => http.closeAllConnections());
    t.after(() => http.close());
    const base = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;

    let kills = 0, cuts = 0;
    for (let paid = false; !paid;) {
      const process_ = spawn(process.execPath, [worker, path, base, String(intents)], { stdio: ["ignore", "pipe", "inherit"] });
      process_.stdout.on("data", (text: Buffer) => (paid ||= text.includes("all are paid")));
      const before = api.requests;
      const kill = setInterval(() => { // once it has sent some requests
        if (api.requests - before > 40 + Math.random() * 80) process_.kill("SIGKILL");
      }, 5);
      const [code, signal] = await new Promise<[number | null, string | null]>((resolve) =>
        process_.on("close", (...end) => resolve(end)));
      clearInterval(kill);
      assert.ok(signal === "SIGKILL" || code === 0, `the process ended by itself: ${code} ${signal}`);
      if (signal === "SIGKILL") kills++;
      if (cut && !paid) {
        const size = fs.statSync(path).size;
        fs.truncateSync(path, Math.max(45, size - Math.floor(Math.random() * 2000)));
        cuts++;
      }
    }
    t.diagnostic(`${intents} intents, ${kills} kills, ${cuts} cuts, ${api.requests} requests, ${repeated} replays`);
    api.once(intents);
    assert.ok(kills >= intents / 100, `${kills} kills`);
    assert.ok(repeated >= intents / 100, `${repeated} replays`);
  });
}

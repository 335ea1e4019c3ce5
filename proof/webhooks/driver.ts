import { readFileSync } from "node:fs";
import { verify } from "./verify.js";

const results = JSON.parse(readFileSync(0, "utf8")).map((r: { secret: string; headers: Record<string, string>; body: string }) => {
  try {
    verify(r.secret, r.headers, Buffer.from(r.body, "base64"));
    return true;
  } catch {
    return false;
  }
});
process.stdout.write(JSON.stringify(results));

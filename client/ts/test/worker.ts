// A program that pays, and is killed by kill.test.ts. Arguments: the journal, the API, the payments.
import { openFile } from "../src/file.js";
import { Client } from "../src/index.js";
import { waitsOf } from "../src/client.js";
import { payment } from "./server.js";

const [path, base, count] = process.argv.slice(2);
const client = new Client({ base: base!, journal: await openFile(path!) });
waitsOf.get(client)!.scale = 1e-2;
await client.resume();
let next = 0;
await Promise.all(Array.from({ length: 16 }, async () => {
  for (let i = next++; i < Number(count); i = next++) await client.do(payment(i));
}));
console.log("all are paid");
process.exit(0); // the journal stays open, as after a kill

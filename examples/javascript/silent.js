// An app that is silent while its user is at work, with nothing of Reticent's but the proto.
//
//     node silent.js ADDRESS TOKEN [AFTER]
//
// AFTER is the position of the last step that the app has seen.
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const PROTO = fileURLToPath(new URL("../../protos/reticent/v1/phone.proto", import.meta.url));
const { reticent } = grpc.loadPackageDefinition(loader.loadSync(PROTO, { longs: Number }));

const [address, token, after] = process.argv.slice(2);
if (!token) {
  console.error("usage: node silent.js ADDRESS TOKEN [AFTER]");
  process.exit(2);
}

const phone = new reticent.v1.Phone(address, grpc.credentials.createInsecure());
const metadata = new grpc.Metadata();
metadata.set("authorization", `Bearer ${token}`);

const steps = phone.subscribe(after === undefined ? {} : { after: Number(after) }, metadata);
steps.on("data", (step) => {
  // An absent context is no empty one: proto-loader leaves its name out.
  console.log(step.day, step.time, step.context === "work" ? "silent" : "loud", step.context ?? "-");
});
steps.on("error", (error) => {
  console.error(`the phone refused: ${grpc.status[error.code]}: ${error.details}`);
  process.exit(error.code === grpc.status.UNAVAILABLE ? 0 : 1);
});

// Prints the shortest times of Prio3 with @divviup/prio3 for each number of counters of 0 or 1, a line of JSON each.

import { randomBytes } from "node:crypto";
import { Prio3Count, Prio3SumVec } from "@divviup/prio3";

const [seconds, ...sizes] = process.argv.slice(2).map(Number);

/** The CPU seconds of this process. */
function used() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

for (const counters of sizes) {
  const single = counters === 1;
  const chunkLength = Math.ceil(Math.sqrt(counters));
  const vdaf = single
    ? new Prio3Count({ shares: 2 })
    : new Prio3SumVec({ shares: 2, bits: 1, length: counters, chunkLength });
  const measurement = single ? true : Array(counters).fill(1);
  const verifyKey = randomBytes(vdaf.verifyKeySize);
  let [phone, servers, upload, between] = [Infinity, Infinity, 0, 0];
  const began = performance.now();
  while (performance.now() - began < 1e3 * seconds) {
    const [nonce, random] = [randomBytes(vdaf.nonceSize), randomBytes(vdaf.randSize)];
    let start = used();
    const { publicShare, inputShares } = await vdaf.shard(measurement, nonce, random);
    const publicBytes = vdaf.encodePublicShare(publicShare);
    const shareBytes = inputShares.map((share) => vdaf.encodeInputShare(share));
    phone = Math.min(phone, used() - start);
    upload = nonce.length + publicBytes.length + shareBytes.reduce((sum, each) => sum + each.length, 0);

    start = used();
    const prepared = [];
    for (const [server, share] of inputShares.entries())
      prepared.push(await vdaf.prepareInit(verifyKey, server, null, nonce, publicShare, share));
    const parts = prepared.map((each) => each.preparationShare);
    const message = await vdaf.unshardPreparationShares(null, parts);
    const sums = prepared.map((each) => {
      const { outputShare } = vdaf.prepareNext(each.preparationState, message);
      return vdaf.aggregate(null, [outputShare]);
    });
    servers = Math.min(servers, used() - start);
    between =
      publicBytes.length +
      shareBytes[1].length +
      vdaf.encodePreparationShare(parts[0]).length +
      vdaf.encodePreparationMessage(message).length;
    const result = [vdaf.unshard(null, sums, 1)].flat();
    if (result.some((each) => BigInt(each) !== 1n)) throw new Error(`a wrong sum: ${result}`);
  }
  console.log(JSON.stringify({ counters, phone, servers, upload, between }));
}

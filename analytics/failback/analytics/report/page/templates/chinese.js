"use strict";
// What a page says in Chinese where the browser prefers it. A key is a label, or a clause of an English sentence without its
// mark: # is a number or a range, @ a name, {} is anything, and a plural's s may be missing; {1} is the first of them.
const CHINESE = {
  "dark / light": "深色 / 浅色", "What happened": "结论", "Why": "原因", "What was re-consumed": "重复消费",
  "What to change": "怎么办", "What was seen": "观察到的事件", "Offsets of every queue": "各队列的位点", "Groups": "消费组",
  "Compare": "对比", "Evidence": "证据", "Words": "术语", "Run card": "运行参数", "@ was down for # s": "{1} 停机 {2} 秒",
  "@ is still down": "{1} 仍在停机", "The number of repeats is not known yet": "重复多少尚不清楚",
  "At least # more are re-consumed if a member starts": "如果启动消费者，至少还会重复 {1} 条",
  "# more are re-consumed if a member starts": "如果启动消费者，还会重复 {1} 条", "# re-consumed": "重复消费 {1} 条消息",
  "# re-consumed ({})": "重复消费 {1} 条消息（{2}）", "Group {} (restart its @ members": "消费组 {1}（请重启其 {2} 消费者",
  "they go on committing to the slave)": "它们仍向 Slave 提交位点）", "Group {}": "消费组 {1}", "# groups": "{1} 个消费组",
  "# other groups": "其余 {1} 个消费组", "none": "没有重复消费", "No master went and came back": "没有 Master 停机后恢复",
  "slave-only progress": "进度仅在 Slave 上", "progress lost at the master's restart": "Master 重启丢失了进度",
  "a later commit of a smaller offset": "之后提交了更小的位点", "no stored offset": "没有已保存的位点",
  "a slave that was behind": "Slave 落后", "progress that members told no broker": "消费者没有提交给任何 Broker 的进度",
  "two owners at once": "同一队列有两个消费者", "unattributed": "原因未判定",
  "members and offsets": "消费者与位点", "offsets only": "仅位点", "complete": "完整", "incomplete": "不完整",
  "with # gaps": "有 {1} 段未观察到", "# checks made": "做了 {1} 项检查", "# of # checks passed": "{2} 项检查中 {1} 项通过",
  "Re-consumed # messages": "重复消费 {1} 条消息", "Re-consumed # %": "重复率 {1}%", "Re-consumed": "重复消费",
  "no limit set": "未设上限", "limit met": "未超上限", "limit missed": "超出上限", "limit not judged": "无法判定是否超限",
  "Measured from outside": "以下是从外部测量的",
  "Each count is a range, because some steps could not be observed": "数量以区间给出，因为有些步骤观察不到",
  "Each group at each return of a master, the most first": "每次 Master 恢复时各消费组的情况，最多的在前", "broker": "Broker", "down (s)": "停机（秒）",
  "group": "消费组", "re-consumed, at least": "重复消费，至少", "at most": "至多", "because": "原因",
  "new member": "有新消费者", "seen by": "依据", "routes": "路由", "offset tables": "位点表", "members": "消费者",
  "message trace": "消息轨迹", "{}, these queues stood below a {}": "{1}，以下队列的位点低于{2}",
  "At the last sample": "最后一次采样时", "safe offset": "安全位点",
  "A consumer that takes one then repeats what lies between": "此时接管这些队列的消费者会重复消费两者之间的消息",
  "{} says where they stand now, and the command that sets them": "{1} 给出它们现在的位点和设置命令",
  "Queues below a safe offset": "低于安全位点的队列",
  "Start no consumer before the offsets of a returned master have caught up": "Master 恢复后，在它的位点追上之前不要启动任何消费者",
  "There is nothing to advise": "没有建议", "no group is known to have consumed anything again": "没有消费组确定重复消费过",
  "Settings, the one that saves most first": "配置项，按效果从大到小", "Events, each between two samples": "事件，每个发生在两次采样之间",
  "No gaps in the observation": "观察没有中断", "Groups that re-consumed nothing": "没有重复消费的消费组",
  "More figures and parts": "更多数据与章节", "What the causes mean": "原因的含义", "The canary": "金丝雀", "at risk": "可能重复", "down since": "停机时刻",
  "Killing master of @ for # s": "强杀 {1} 的 Master {2} 秒", "# of # messages re-consumed": "{2} 条消息中重复消费 {1} 条", "# of # messages re-consumed {}": "{2} 条消息中重复消费 {1} 条{3}", "Copy": "复制",
  "Copied": "已复制",
  "Below, each setting changed alone is {} for the group that may have consumed most again, at the rate and with the backlog that were seen and its broker's settings": "以下是单独调整每个配置项的{1}结果，针对可能重复最多的消费组，采用观察到的速率、积压和 Broker 配置",
  "the defaults of clients are assumed": "客户端按默认配置", "{} takes yours": "用 {1} 可以填入你的配置", "predicted": "预测",
  "setting": "配置项", "now": "当前", "change to": "改为", "fewer duplicates, mean": "平均减少的重复",
  "fewer at worst": "最坏情况减少", "how": "如何修改", "costs": "代价", "not before (s)": "不早于（秒）", "seen (s)": "观察到（秒）",
  "what": "事件", "member": "消费者", "detail": "详情", "All checks": "全部检查",
  "Checks, those that did not pass first": "检查项，未通过的在前", "start offsets and the log": "起始位点与日志",
  "Files and rows": "文件与行数", "No clock was compared": "没有对比时钟",
  "At least # messages of {} are at stake on @": "{3} 上消费组 {2} 至少有 {1} 条消息可能重复消费",
  "{} the slave copied the old offsets": "{1} Slave 复制了旧位点",
  "At least # messages of {} on @ are re-consumed when it starts": "{3} 上消费组 {2} 启动后至少重复消费 {1} 条消息",
  "ACT @ no member": "需处理 {1} 没有在线消费者", "ACT @ members are not known": "需处理 {1} 不清楚有没有在线消费者",
  "# will be re-consumed": "将重复 {1} 条", "slave copies in about # s": "Slave 约 {1} 秒后复制",
  "wait @ # members runs": "等待 {1} {2} 个消费者在线", "{} offsets by itself": "{1}位点", "stores its": "自行提交",
  "store their": "自行提交", "Copy all": "全部复制", "Dismiss": "不再显示",
  "Offsets as they were, of all groups at once": "覆盖前的位点，一次处理所有消费组", "@ s left": "还剩 {1} 秒",
  "Queue by queue": "逐个队列查看", "The master is down": "Master 停机",
  "What its file knows is older than what the slave knows": "它文件中的位点比 Slave 上的旧",
  "When it returns, members that are restarted repeat this much": "它恢复后，新启动的消费者会重复这么多消息",
  "Keep the members that run": "让正在运行的消费者继续运行", "Before it starts, type this on its host": "在它启动之前，在它的主机上执行",
  "The master is back with an old table, and the slave will copy it": "Master 已恢复，但位点是旧的，Slave 即将复制这些旧位点",
  "Store the slave's offsets before that, of all groups at once": "请在此之前写入 Slave 上的位点，一次处理所有消费组",
  "The slave's table is ahead of the master's": "Slave 上的位点比 Master 上的新",
  "If it stays so, the slave does not copy its master": "如果一直如此，说明 Slave 没有复制 Master",
  "Store the better offsets": "请写入较新的位点", "Timeline": "时间线", "Causes": "重复原因",
  "Which messages were re-consumed": "哪些消息重复了", "Recovery time": "恢复时间", "Bound and prediction": "上限与预测",
  "What the repeats cost": "重复的代价", "Losses and order": "丢失与顺序", "{} so far": "目前{1}", "not known yet": "尚不清楚",
  "# more are at risk": "另有 {1} 条可能重复", "no master was down": "没有 Master 停机",
  "nothing was measured": "没有测量到数据", "trace, complete": "消息轨迹，完整", "trace, in part": "消息轨迹，部分",
  "The group consumed from the slave while the master was down": "Master 停机期间，消费组从 Slave 消费",
  "Only the slave stored those offsets": "这些位点只保存在 Slave 上",
  "A consumer that started after the return asked the master, which never heard of them": "Master 恢复后启动的消费者向 Master 查询，而 Master 从未收到这些位点",
  "Let consumers run over the return, or set {}": "让消费者一直运行到恢复之后，或设置 {1}",
  "For a group that is stopped, set the offset that {} calls safe": "对已停止的消费组，设置 {1} 给出的安全位点",
  "The group had committed to the master's memory": "消费组的位点已提交到 Master 的内存",
  "The master died before it wrote its offset file, so it came back with the older file": "Master 在写入位点文件之前宕机，恢复时加载的是旧文件",
  "Shorten {} (# ms by default)": "调小 {1}（默认 {2} 毫秒）", "Do not restart consumers right after a master's return": "不要在 Master 刚恢复时重启消费者",
  "A smaller offset was stored over a larger one": "较小的位点覆盖了较大的位点",
  "by a late commit of an old owner, or by the slave's copy of a returned master's older table": "原消费者提交较晚，或 Slave 复制了恢复的 Master 上的旧位点",
  "Wait for old consumers to end before new ones start": "旧消费者停止之后再启动新消费者", "Against the slave's copy set {}": "针对 Slave 的复制，设置 {1}",
  "The broker that answered knew no offset of the group for this queue, so the consumer began at the first message": "应答的 Broker 没有该消费组在这个队列上的位点，消费者从第一条消息开始",
  "Keep the offset files through a power loss ({}), and set a group's offsets before it starts on a restored or empty broker": "防止断电丢失位点文件（{1}）；消费组在恢复的或空的 Broker 上启动之前，先设置位点",
  "A consumer started while only the slave was there": "消费者在只有 Slave 在线时启动",
  "The slave's copy of the offsets was older than what the group had committed": "Slave 上的位点副本比消费组已提交的旧",
  "Start no consumers during an outage": "故障期间不要启动消费者", "The copy is made every # s, which 4.9 cannot change": "每 {1} 秒复制一次，4.9 无法修改",
  "Apache's client for Go commits to no broker while only a slave is there": "只有 Slave 在线时，Apache 的 Go 客户端不向任何 Broker 提交位点",
  "What its members handled in the outage is known to them alone": "故障期间处理到哪里，只有消费者自己知道", "Only an observed run names this cause": "只有观察得到的报告会给出这一原因",
  "Run {} beside each slave": "在每个 Slave 旁运行 {1}", "it tells the slave what the members have finished": "它把消费者已处理完的位点提交给 Slave",
  "Without it stop no Go member while the master is down": "没有它时，Master 停机期间不要停止 Go 消费者",
  "Two members of the group held the queue at the same time": "同一消费组的两个消费者同时持有该队列",
  "the new owner began before the old one had given it up": "新的消费者在原消费者放弃之前就开始消费",
  "After a master's restart this lasts up to one heartbeat period (# s)": "Master 重启后，最多持续一个心跳周期（{1} 秒）", "{} prevents it": "{1} 可以避免",
  "Handlers must bear a message twice at once": "消费逻辑要能承受同一条消息同时处理两次"
};
const KINDS = {"#": "((?:[\\d,.]+ to )?[\\d,.]*\\d)", "@": "(\\S+)", "{}": "(.+?)"};
const MARKS = {".": "。", ":": "：", ";": "；"};
const patterns = !navigator.language.startsWith("zh") ? [] : Object.entries(CHINESE).map(([english, chinese]) =>
  [new RegExp("^" + english.replace(/[.*+?^$()[\]|\\]/g, "\\$&").replace(/s\b/g, "s?").replace(/#|@|\{\}/g, (kind) => KINDS[kind]) + "$"), chinese]);
function inWords(text) {
  const parts = text.split(/([.:;])(?: |$)/); // clauses and their marks, by turns
  if (parts.length > 1) {
    const said = parts.map((part, place) => place % 2 ? part : inWords(part));
    return said.map((part, place) => place % 2 === 0 ? part : said[place - 1] === parts[place - 1] ? part + " " : MARKS[part]).join("").trim();
  }
  for (const [pattern, chinese] of patterns) {
    const found = text.match(pattern);
    if (found) return chinese.replace(/\{(\d)\}/g, (_, place) => inWords(found[place].replace(" to ", " 至 ")));
  }
  const [, head, last] = text.match(/^(.+) ([\ue000-\uf8ff])$/) || []; // an element that stands behind the clause
  if (head) return inWords(head) + " " + last;
  const listed = text.split(/, | or /).map((each) => CHINESE[each]); // causes, kinds of evidence
  return listed.every(Boolean) ? listed.join(text.includes(" or ") ? "，或" : "、") : text;
}
function inChinese(page) {
  for (const element of patterns.length ? page.querySelectorAll("body *") : []) {
    for (const name of ["aria-label", "title", "data-label"])
      if (element.hasAttribute(name)) element.setAttribute(name, inWords(element.getAttribute(name)));
    if (element.closest("script, style, code:not(.stakes code), svg, .figure")) continue;
    const inside = Array.from(element.children), nodes = Array.from(element.childNodes);
    const text = nodes.map((each) => each.nodeType === 1 ? String.fromCharCode(0xe000 + inside.indexOf(each)) : each.data).join("").replace(/\s+/g, " ").trim();
    if (!/[a-z]/i.test(text) || (element.closest("bdi") && !text.includes(" "))) continue; // a name stays
    const said = inWords(text);
    if (said === text) continue;
    element.lang = "zh-CN";
    element.replaceChildren(...said.split(/([\ue000-\uf8ff])/).map((part) => inside[part.charCodeAt(0) - 0xe000] || part));
  }
}
inChinese(document);

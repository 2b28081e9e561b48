"""Single-turn dialogue as in Gu et al. 2016, section 5.3: patterns such as `hi, my name is x → hi, x`, slots filled.

The paper gives the sizes and seven examples; its 173 patterns, from Baidu Tieba, and its entities are not public. The
173 patterns in dialogue_patterns.jsonl were written for this project. A slot names a kind of word, with a digit if the
pattern has two of a kind: {city}, {city2}. The digit 9 marks an entity that is not in the message, hence not copied.
Words come from jieba's dictionary, by part of speech, spelling and frequency; numbers and dates are generated.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

PATTERNS = Path(__file__).with_name("dialogue_patterns.jsonl")
SLOT = re.compile(r"\{([a-z]+)(\d?)\}")
OUTSIDE = "9"
POOL = 100  # at most so many words of a kind are in training, and as many others only in the test set of DS-II


class Kind(NamedTuple):
    """Which words of the dictionary are of a kind.

    Attributes:
        tags: parts of speech, separated by spaces.
        spelling: a regular expression; its last group, if it has one, is the word.
        min_frequency, max_frequency: in the dictionary.
        without: characters that no word may have.
    """

    tags: str
    spelling: str
    min_frequency: int
    max_frequency: int = 1_000_000
    without: str = ""


SURNAMES = "王李张刘陈杨赵黄周吴徐孙朱林郭罗梁宋郑谢韩唐曹袁邓许沈彭吕苏蒋蔡魏薛叶潘杜戴钟汪姜姚谭廖邹熊孟"
GIVEN = "伟芳娜敏静丽强磊洋勇艳杰娟涛明超霞平刚英华玉萍红玲芬燕彬鹏浩凯梅琳雪慧颖倩婷丹莹洁云莉峰斌波辉宁健俊帆"
KINDS = {
    "person": Kind("nr", f"[{SURNAMES}].[{GIVEN}]", 4, 9, without="小大阿老家二三四五六七八九女先"),
    "foreign": Kind("nrt", ".{2,3}[尔斯特克拉里德格顿森伯利莱纳娜蒂娅诺夫]", 8, 300, without="圣新上下"),
    "city": Kind("ns", "(..)市", 3, without="全本省各津大"),
    "county": Kind("ns", "..[县镇村]", 3, without="自百台上下前后大小各"),
    "island": Kind("ns", ".{2,3}岛", 3, without="和夺无太四三英北列蓬朝"),
    "mountain": Kind("ns nz", "..[山峰岭]", 5, without="上下打欧宋许翁"),
    "water": Kind("ns", ".{2,3}[湖河江]", 8, without="上下内外跑咸常信里堰"),
    "university": Kind("nt", ".{2,4}大学", 3, without="文军社综外政商民法中财公红德抗国美英"),
    "team": Kind("nt", ".{2,3}(?<!部)(?<!舰)队", 3, without="施陆青武卫交联保法抗新人平党军纵"),
    "street": Kind("ns nz", ".{2,3}[路街]", 3, without="求轧黄泉土八大致修架柳广仙叩铁公保片成制放荡"),
    "idiom": Kind("i", ".{4}", 15, 150),
    "food": Kind(
        "n",
        ".{1,2}[瓜豆桃梨枣莓橘饼糕粥菇笋薯虾蟹]|[牛羊猪鸡鸭鱼鹿兔驴腊烤熏酱卤咸瘦扣]肉|..[肉菜]|[白青菠韭芹蕨荠苋莼咸酸泡榨]菜",
        8,
        without="傻寄磷脑铁拐袋骨心息",
    ),
    "drink": Kind(
        "n nz",
        ".{1,2}[茶酒汁]|[鲜酸豆羊]奶",
        3,
        without="品饮敬戒断毒假醉泡喝嗜端倒流脓精血名美烟杯闷花薄佐胆脑肉碘令侍十商多娘家将散树漆"
        "盐私肴腌舀荤蛋行装请调酱阳零鸡鸩色虎瓶",
    ),
    "animal": Kind(
        "n",
        ".{1,2}[犬狗猫龟虎熊猴兔鹿蛇鹰鸟羊雁鹤鸽鸭鼠鸥]|[鲨鲸鳄鲤鲫金]鱼",
        5,
        without="死爱恶群养替走花牧雏领大疯纸幽战梦妖百逐神驱全灭捕天头落硕笑宿铁获五老巨肉夜飞",
    ),
    "plant": Kind(
        "n",
        "..[花树]|[桃莲菊荷樱茶梨杏槐葵桂兰梅]花|[桃梨杏枣桦榕樟槐枫橡茶松柏柳柿楸榉椿杉桉椰棕栎构楝]树|[斑楠箭翠]竹",
        5,
    ),
    "job": Kind("n", "..[师员家]", 15, without="全动毕女老人装步坦炮党委总众参会资野阴投"),
    "disease": Kind("n", ".{1,2}[炎疹]|..[病症]", 8, without="发消大重旧景建延毛点心多"),
    "subject": Kind("n", ".{2,4}学", 10, without="大文中科教同留自入升开休"),
    "machine": Kind("n", "..[机器]", 20, without="战轰侦歼预攻强击扫反丘部架核导青加旧新石轻冷重"),
    "goods": Kind("n", ".{1,2}[裤裙帽衫椅柜壶锅伞毯袜鞋]|手[机表套帕镯杖链]", 8, without="制钉穿保乌冠踏等黑"),
    "place": Kind("n", "..[室馆厅店厂园]", 15, without="板周殡使更燃急手监盥禁曲聚同白公保发警人兵军作处"),
}
GENERATED: dict[str, Sequence[str | int]] = {
    "date": [f"{month}月{day}号" for month in range(1, 13) for day in range(1, 29)],
    "time": [f"{hour}点{minute:02}" for hour in range(6, 24) for minute in range(5, 60, 5)],
    "year": range(1940, 2020),
    "number": range(11, 100),
    "count": range(100, 5_000),
    "score": [f"{ours}比{theirs}" for ours in range(10) for theirs in range(10) if ours != theirs],
    "phone": range(12_000_000_000, 13_000_000_000),
    "train": [f"{letter}{number}" for letter in "GDKTZ" for number in range(100, 1_000)],
}
# Words that match a kind but are not of it, or are out of place in small talk.
EXCLUDED = """
李连杰 刘嘉玲 张靓颖 杨利伟 陈道明 李克强 李宗伟 杜琪峰 克什米尔 荆沙 钓鱼岛 台湾岛 西沙群岛 火山岛 南沙群岛 印度半岛
南极半岛 与那国岛 金门岛 东沙岛 中建岛 东沙群岛 中南半岛 中沙群岛 南海诸岛 城市热岛 希腊半岛 择捉岛 喀喀湖 理工大学
农业大学 石油大学 化工大学 友谊大学 林业大学 海洋大学 理科大学 经贸大学 邮电大学 国际队 商船队 吉尔队 赫特队 四好连队
尼亚队 山猫队 斯堡队 美东队 美北队 美南队 美西队 花儿乐队 西亚队 西藏天路 美食街 上坡路 宁为玉碎 不为瓦全 可口可乐
聊以自慰 知不知道 如之奈何 杀人放火 令狐冲心 大豆 鱼虾 夹竹桃 石笋 咖啡豆 红桃 寿桃 下酒菜 可可豆 家常菜 扁桃 黑桃 小豆
糖豆 风味菜 拿手菜 煤饼 画饼 曲酒 茄汁 乳汁 保健酒 山茶 烈性酒 浆汁 液汁 醇酒 奶汁 素酒 蜜汁 榨汁 淡酒 水酒 糖汁 儿茶
浓汁 面茶 原汁 原酒 糖茶 菜汁 淡茶 糖酒 酿造酒 乳酒 产乳汁 产茶 加料酒 劣酒 发酵酒 咖哩汁 团茶 小酒 暖酒 柑汁 棍儿茶
残酒 沥酒 清汁 灌酒 火酒 甘汁 纯酒 羊酒 肠清茶 苦汁 茶茶 茶酒 猛虎 金蛇 猿猴 候鸟 鹰犬 烤鸭 细毛羊 禽鸟 菜鸟 三脚猫
肥羊 实验鼠 滩羊 板鸭 烤羊 爬山虎 石龟 龙蛇 丑小鸭 爬墙虎 留鸟 烧鸭 看家狗 狂犬 万蛇 利鹿 热狗 肿骨鹿 爆米花 阔叶树
摇钱树 电火花 针叶树 行道树 圣诞树 交际花 罂粟花 海石花 蝶形花 单性花 舌状花 姊妹花 观赏树 管状花 决策树 架子花 落叶树
风景树 酥油花 陪审员 巡视员 特派员 教职员 亲戚家 核国家 百姓家 纵横家 伤病员 姑娘家 朋友家 战斗员 研究家 经学家 制造家
孩子家 工业家 邻居家 重伤员 地主家 学问家 理想家 过家家 击球员 演奏员 艾滋病 传染病 白血病 精神病 职业病 神经病 慢性病
败血症 综合症 炎炎 遗传病 适应症 尿毒症 流行病 缺乏症 急性病 禁忌症 合并症 霜霉病 妇科病 盆腔炎 尿道炎 白粉病 附睾炎
不育症 叶斑病 地方病 放射病 不孕症 巨人症 水俣病 爱滋病 硬化症 异位症 老年病 麻风病 幼稚病 毒血症 透疹 软腐病 青枯病
晚疫病 稻瘟病 赤霉病 霉菌病 热带病 国子学 假道学 运输机 飞行器 发射器 教练机 航天器 感受器 原型机 生殖器 推进器 航空器
细胞器 助推器 潜水器 巡逻机 弦乐器 图灵机 对撞机 喷火器 大型机 升船机 陶瓷器 巨型机 浮空器 现调机 通用机 效应器 微型机
客户机 成大器 衣衫 下锅 掌柜 桌椅 交椅 鞋袜 衣裤 降落伞 内裤 衣裙 龙椅 破鞋 衣帽 盖帽 高帽 专柜 烟锅 夜壶 鞋帽 藤壶
恤衫 烧锅 漏壶 执壶 便壶 摘帽 箱柜 金交椅 开裆裤 笔帽 小鞋 罗锅 上柜 小红帽 内衣裤 投壶 尿壶 教育厅 制造厂 连锁店
文化厅 生产厂 火烧店 起居室
"""


@dataclass(frozen=True)
class Pattern:
    """A message with slots and its replies."""

    message: str
    replies: tuple[str, ...]

    def make_instance(self, pool: dict[str, list[str]], rng: random.Random) -> dict[str, Any]:
        """Fills the slots: `text` is the message, `summary` one of the replies, `answers` all of them.

        A reply with an entity that is not in the message is an answer only if it is the `summary`.
        """
        values: dict[str, str] = {}
        for kind, digit in SLOT.findall(self.message + "".join(self.replies)):
            while kind + digit not in values:
                word = rng.choice(pool[kind])
                if not any(word in other or other in word for other in values.values()):
                    values[kind + digit] = word
        drawn = rng.choice(self.replies)
        replies = [reply for reply in self.replies if reply == drawn or not has_new_entity(reply)]
        return {
            "text": self.message.format_map(values),
            "summary": drawn.format_map(values),
            "answers": [reply.format_map(values) for reply in replies],
        }


def has_new_entity(reply: str) -> bool:
    """Whether the reply has an entity that the message lacks."""
    return any(digit == OUTSIDE for _, digit in SLOT.findall(reply))


@cache
def read_patterns() -> list[Pattern]:
    """Reads the 173 patterns."""
    lines = PATTERNS.read_text(encoding="utf-8").splitlines()
    return [Pattern(row["message"], tuple(row["replies"])) for row in map(json.loads, lines)]


@cache
def read_slot_words() -> dict[str, list[str]]:
    """The words that can fill a slot, by kind: the dictionary's most frequent ones that no pattern contains."""
    import jieba

    tagged: dict[str, list[tuple[int, str]]] = {}
    with Path(jieba.__file__).with_name("dict.txt").open(encoding="utf-8") as lines:
        for line in lines:
            word, frequency, tag = line.split()
            tagged.setdefault(tag, []).append((-int(frequency), word))
    constants = " ".join(
        SLOT.sub(" ", text) for pattern in read_patterns() for text in (pattern.message, *pattern.replies)
    )
    excluded = set(EXCLUDED.split())
    slot_words: dict[str, list[str]] = {}
    for name, kind in KINDS.items():
        spelling = re.compile(kind.spelling)
        matching = {
            (rank, match[match.lastindex or 0])
            for tag in kind.tags.split()
            for rank, word in tagged[tag]
            if kind.min_frequency <= -rank <= kind.max_frequency and (match := spelling.fullmatch(word))
        }
        words = [word for _, word in sorted(matching) if not set(word) & set(kind.without) and word not in constants]
        slot_words[name] = [word for word in dict.fromkeys(words) if word not in excluded][: 2 * POOL]
    rng = random.Random(0)
    for name, values in GENERATED.items():
        slot_words[name] = [str(value) for value in rng.sample(values, min(2 * POOL, len(values)))]
    return slot_words


@cache
def split_slot_words(seed: int = 0) -> dict[str, dict[str, list[str]]]:
    """Splits the words of each kind into those `seen` in training and `new` ones.

    The halves share no word, even of different kinds, and no word of one contains a word of the other, as 长沙县
    contains 长沙. Numbers may contain each other.
    """
    rng = random.Random(seed)
    half: dict[str, str] = {}
    all_words = [(word, kind) for kind, words in read_slot_words().items() for word in words]
    halves: dict[str, dict[str, list[str]]] = {
        name: {kind: [] for kind in read_slot_words()} for name in ("seen", "new")
    }
    for word, kind in sorted(rng.sample(all_words, len(all_words)), key=lambda pair: len(pair[0])):
        ends = range(1, len(word) + 1)
        parts = {word[start:end] for end in ends for start in range(end)} if word.isalpha() else {word}
        inherited = {half[part] for part in parts & half.keys()}
        if len(inherited) < 2:
            smaller = min(halves, key=lambda name: len(halves[name][kind]))
            half[word] = inherited.pop() if inherited else smaller
            halves[half[word]][kind].append(word)
    return halves


def make_dialogue_pairs(
    name: str, seed: int = 0, train: int = 6_500, validation: int = 500, test: int = 1_500
) -> dict[str, list[dict[str, Any]]]:
    """Makes DS-I or DS-II; no two splits share a message. `pattern` is the number of a row's pattern.

    The two differ only in `test`, whose slots have words of the training set in DS-I and new ones in DS-II.

    Raises:
        ValueError: `name` is neither DS-I nor DS-II.
    """
    if name not in ("DS-I", "DS-II"):
        raise ValueError(f"name is {name!r}: use DS-I or DS-II")
    halves, rng = split_slot_words(seed), random.Random(seed)
    pairs: dict[str, list[dict[str, Any]]] = {}
    for split, size in {"train": train, "validation": validation, "test": test}.items():
        pool = halves["new" if (name, split) == ("DS-II", "test") else "seen"]
        earlier = {row["text"] for rows in pairs.values() for row in rows}
        pairs[split] = [_draw_row(earlier, pool, rng) for _ in range(size)]
    return pairs


def _draw_row(earlier: set[str], pool: dict[str, list[str]], rng: random.Random) -> dict[str, Any]:
    """Draws an instance of a random pattern whose message is not among those of the earlier splits."""
    index = rng.randrange(len(read_patterns()))
    for _ in range(10_000):
        row = read_patterns()[index].make_instance(pool, rng)
        if row["text"] not in earlier:
            return {**row, "pattern": index}
    raise ValueError(f"pattern {index} has no unused messages left: make fewer rows")

"""Wrong configurations, each with the mistakes that must be told. Add one: append a ``Wrong``.

``{tree}`` in a word is the folder of ``files``, a person's own config tree that is given with
--config-dir; ``{tmp}`` is an empty folder.
"""

from __future__ import annotations

from dataclasses import dataclass, field

PIPELINE = "_target_: llmexp.stage.config.PipelineSpec\nstages:\n"
EXPERIMENT = "_target_: llmexp.stage.config.ExperimentSpec\noverrides:\n"


@dataclass(frozen=True)
class Told:
    """What one mistake must say: its path, and a part of its problem, source and remedy."""

    path: str
    problem: str
    source: str
    remedy: str


@dataclass(frozen=True)
class Wrong:
    """A configuration with mistakes."""

    kind: str
    group: str
    words: tuple[str, ...]
    told: tuple[Told, ...]
    files: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """For the test's own name."""
        return f"{self.kind}: {' '.join(self.words) or ' '.join(self.files)}"


def line(kind: str, group: str, word: str, path: str, problem: str, remedy: str, *more: str) -> Wrong:
    """One wrong override; ``more`` are the other words of the command."""
    return Wrong(kind, group, (*more, word), (Told(path, problem, f"override {word}", remedy),))


def three(kind: str, *told: Told, words: tuple[str, ...] = (), files: dict[str, str] | None = None) -> Wrong:
    """Three mistakes at once."""
    return Wrong(kind, "several", words, told, files or {})


def file(kind: str, name: str, text: str, word: str, path: str, problem: str, remedy: str) -> Wrong:
    """A wrong file of a person's tree, chosen by ``word``."""
    return Wrong(kind, name.split("/")[0], (word,), (Told(path, problem, name, remedy),), {name: text})


WRONG = [
    # --- unknown keys ---
    line(
        "unknown key",
        "optimizer",
        "optimizer.lrr=1",
        "optimizer.lrr",
        "no stage here (collect, curate, bpe, tokens, pretrain) has 'optimizer.lrr'",
        "Did you mean 'optimizer.lr'?",
    ),
    line(
        "unknown key",
        "scheduler",
        "scheduler.warmup=10",
        "scheduler.warmup",
        "no stage here",
        "Did you mean 'scheduler.warmup_steps'?",
    ),
    line(
        "unknown key",
        "loader",
        "loader.batch_size=8",
        "loader.batch_size",
        "no stage here",
        "'loader' has: packing",
    ),
    line(
        "unknown key",
        "optimizer",
        "optimizer.warmup_steps=8",
        "optimizer.warmup_steps",
        "no stage",
        "'scheduler.warmup",
    ),
    line(
        "unknown key",
        "tracking",
        "tracking.urii=x",
        "tracking.urii",
        "there is no",
        "Did you mean 'tracking.uri'?",
    ),
    line("unknown key", "paths", "paths.out=x", "paths.out", "there is no", "'paths.outputs'"),
    line(
        "missing file", "paths", "paths.outputs=/dev/null", "paths.outputs", "is no folder", "name a folder"
    ),
    line(
        "missing file",
        "paths",
        "paths.outputs=/dev/null/x",
        "paths.outputs",
        "/dev/null is no folder",
        "name a folder",
    ),
    line("out of range", "paths", "paths.outputs='~/x'", "paths.outputs", "no shell", "write /"),
    line("out of range", "paths", "paths.outputs=", "paths.outputs", "is empty", "name a folder"),
    line("unknown key", "root", "sede=1", "sede", "no stage here", "Did you mean 'seed'?"),
    line(
        "unknown key",
        "sft",
        "sft.optimizer.lrr=1",
        "sft.optimizer.lrr",
        "there is no",
        "'optimizer.lr'",
        "stage=sft",
    ),
    line(
        "unknown key",
        "optimizer",
        "optimizer={lr: 1, foo: 2}",
        "pretrain.optimizer.foo",
        "no 'foo' in Ada",
        "it has",
    ),
    # --- options ---
    line(
        "unknown option",
        "optimizer",
        "optimizer=adam",
        "optimizer",
        "no option 'adam'",
        "Did you mean 'adamw'?",
    ),
    line(
        "unknown option", "model", "model=llama3", "model", "no option 'llama3'", "Did you mean 'llama3_8b'?"
    ),
    line(
        "unknown option",
        "launcher",
        "launcher=slrm",
        "launcher",
        "no option 'slrm'",
        "options: local, processes",
    ),
    line("unknown option", "experiment", "experiment=quikstart", "experiment", "no option", "'quickstart'"),
    line(
        "unknown option",
        "model",
        "pretrain.model=tinny",
        "pretrain.model",
        "no option 'tinny'",
        "Did you mean 'tiny'?",
    ),
    line(
        "unknown option",
        "optimizer",
        "optimizer=[adamw,muon]",
        "optimizer",
        "takes one option",
        "adamw, muon",
    ),
    line("+ on a group", "model", "+model=small", "model", "is there already", "write model=small"),
    line("~ on a group", "optimizer", "~optimizer", "optimizer", "cannot be taken away", "optimizer=OPTION"),
    line("package of a group", "model", "model@x=small", "model", "has one place", "write model=small"),
    line(
        "group of another stage",
        "model",
        "model=tiny",
        "model",
        "has the group 'model'",
        "config",
        "stage=collect",
    ),
    line(
        "group of another stage",
        "sft",
        "sft.model=tiny",
        "sft.model",
        "stage 'sft' (sft) has no group 'model'",
        "it has: loader",
        "stage=sft",
    ),
    # --- types ---
    line(
        "wrong type",
        "optimizer",
        "optimizer.lr=fast",
        "pretrain.optimizer.lr",
        "'fast' is not a number",
        "a number",
    ),
    line("wrong type", "root", "seed=1.5", "pretrain.seed", "1.5 is not an integer", "an integer"),
    line(
        "wrong type",
        "trainer",
        "trainer.max_steps=true",
        "pretrain.trainer.max_steps",
        "true is not",
        "integer",
    ),
    line(
        "wrong type",
        "trainer",
        "trainer.compile=maybe",
        "pretrain.trainer.compile",
        "not true or false",
        "true or",
    ),
    line(
        "wrong type",
        "optimizer",
        "optimizer.betas=0.9",
        "pretrain.optimizer.betas",
        "is not a list",
        "a list",
    ),
    line(
        "wrong type",
        "optimizer",
        "optimizer.betas=[a,b]",
        "pretrain.optimizer.betas",
        "each a number",
        "a list",
    ),
    line(
        "wrong type", "grpo", "objective=3", "grpo.objective", "a mapping with the", "GRPOSpec", "stage=grpo"
    ),
    line(
        "wrong type",
        "data",
        "data.path=true",
        "collect.data.path",
        "true is not a string",
        "\"'true'\"",
        "data=text_files",
    ),
    # --- ranges and choices ---
    line(
        "out of range", "optimizer", "optimizer.lr=-1", "pretrain.optimizer.lr", "-1.0 is out of range", "> 0"
    ),
    line(
        "out of range",
        "optimizer",
        "optimizer.lr=inf",
        "pretrain.optimizer.lr",
        "not a finite",
        "give a number",
    ),
    line(
        "out of range",
        "optimizer",
        "optimizer.betas=[0.9,1]",
        "pretrain.optimizer.betas",
        "1.0 is out of",
        ">= 0 and < 1",
    ),
    line(
        "out of range",
        "trainer",
        "trainer.global_batch=0",
        "pretrain.trainer.global_batch",
        "0 sequences",
        ">= 1",
    ),
    line(
        "out of range",
        "rollout",
        "rollout.group_size=1",
        "grpo.rollout.group_size",
        "1 is out",
        ">= 2",
        "stage=grpo",
    ),
    line(
        "bad choice",
        "loader",
        "loader.packing=bestfit",
        "pretrain.loader.packing",
        "not one of",
        "'best_fit'",
    ),
    line(
        "bad choice",
        "trainer",
        "trainer.device=gpu",
        "pretrain.trainer.device",
        "'gpu'",
        "auto, cpu, cuda, mps",
    ),
    line(
        "bad choice",
        "model",
        "model.position=alibi",
        "pretrain.model.position",
        "'alibi'",
        "learned, none, rope",
    ),
    # --- values that are not there ---
    Wrong(
        "missing value",
        "data",
        ("data=text_files",),
        (
            Told(
                "collect.data.path",
                "a value is missing",
                "conf/data/text_files.yaml",
                "give data.path=<STRING>",
            ),
        ),
    ),
    line(
        "missing file",
        "data",
        "data.path={tmp}/no_such",
        "collect.data.path",
        "no_such does not exist",
        "give a file, a folder or a glob",
        "data=text_files",
    ),
    line(
        "missing file",
        "trainer",
        "trainer.resume=nowhere",
        "pretrain.trainer.resume",
        "no nowhere",
        "checkpoint",
    ),
    line(
        "bad interpolation",
        "root",
        "seed=${nope}",
        "pretrain.seed",
        "'nope' not found",
        "name a key that exists",
    ),
    line(
        "bad interpolation",
        "model",
        "model.n_layers=${model.n_head}",
        "pretrain.model.n_layers",
        "'stages.pretrain.model.n_head' not found",
        "Did you mean 'stages.pretrain.model.n_heads'?",
    ),
    Wrong(
        "bad interpolation",
        "model",
        ("model.n_layers=${model.n_heads}", "model.n_heads=${model.n_layers}"),
        (
            Told("pretrain.model.n_layers", "Recursive", "override model.n_layers=", "name each other"),
            Told("pretrain.model.n_heads", "Recursive", "override model.n_heads=", "name each other"),
        ),
    ),
    line(
        "bad interpolation",
        "tracking",
        "tracking.experiment=${nope:x}",
        "tracking.experiment",
        "nope",
        "name a key",
    ),
    line(
        "bad interpolation", "root", "seed=${tracking.uri}", "pretrain.seed", "${tracking.uri}", "name a key"
    ),
    line(
        "missing environment variable",
        "tracking",
        "tracking.uri=${oc.env:LLMEXP_NOT_SET}",
        "tracking.uri",
        "'LLMEXP_NOT_SET' not found",
        "set the environment variable",
    ),
    # --- combinations ---
    line("combination", "model", "model.n_heads=7", "pretrain.model.n_heads", "7 does not divide", "use 6"),
    line(
        "combination", "optimizer", "optimizer.betas=[0.9]", "pretrain.optimizer.betas", "holds 1", "give two"
    ),
    line(
        "combination",
        "trainer",
        "trainer.max_tokens=100",
        "pretrain.trainer.max_tokens",
        "are set",
        "exactly one",
    ),
    Wrong(
        "combination",
        "trainer",
        ("trainer.stop_when=val_loss_rises",),
        (Told("pretrain.trainer.val_every", "stop_when=val_loss_rises never", "default", "stop_when=null"),),
    ),
    Wrong(
        "combination of groups",
        "trainer",
        ("trainer.stop_when=val_loss_rises", "trainer.val_every=10", "collect.data.heldout=0"),
        (
            Told(
                "pretrain.trainer.stop_when",
                "nothing is held out",
                "override trainer.stop_when=val_loss_rises",
                "data.heldout=0.05",
            ),
        ),
    ),
    line(
        "combination of groups",
        "loader",
        "loader.seq_len=100000",
        "pretrain.loader.seq_len",
        "more than model.max_seq_len",
        "lower loader.seq_len or raise",
    ),
    line(
        "combination of groups",
        "scheduler",
        "scheduler.warmup_steps=2000",
        "pretrain.scheduler.warmup_steps",
        "training has 1000 steps",
        "set at most 999",
    ),
    line(
        "combination of groups",
        "trainer",
        "trainer.global_batch=33",
        "pretrain.trainer.global_batch",
        "33 sequences cannot be shared evenly by 2 ranks",
        "set 32 or 34",
        "parallel.dp_replicate=2",
    ),
    line(
        "combination of groups",
        "rollout",
        "rollout.group_size=5",
        "grpo.rollout.group_size",
        "not whole groups of 5",
        "multiple of 5",
        "stage=grpo",
    ),
    line(
        "combination of stages",
        "tokenizer",
        "model.vocab_size=300",
        "pretrain.model.vocab_size",
        "300 is less than tokenizer.vocab_size=4096",
        "model.vocab_size=null",
        "tokenizer.vocab_size=4096",
    ),
    line(
        "combination of stages",
        "loader",
        "sft.loader.seq_len=2048",
        "sft.loader.seq_len",
        "2048 is more than the model's max_seq_len=1024",
        "lower loader.seq_len",
        "stage=sft",
    ),
    # --- stages ---
    line("unknown stage", "root", "stage=pretran", "stage", "there is no stage 'pretran'", "'pretrain'"),
    line(
        "unknown prefix",
        "root",
        "pretrian.optimizer.lr=1",
        "pretrian.optimizer.lr",
        "'pretrian' is neither a stage",
        "Did you mean 'pretrain.optimizer.lr'?",
    ),
    line(
        "stage that is not there",
        "root",
        "sft.optimizer.lr=1",
        "sft.optimizer.lr",
        "'sft' is no stage of this pipeline",
        "stage=sft runs that stage",
    ),
    Wrong(
        "stage that is spared",
        "root",
        ("stage=sft", "inputs.model={tmp}/tree", "pretrain.optimizer.lr=1"),
        (
            Told(
                "pretrain.optimizer.lr",
                "'pretrain' is not run, since what it makes is given",
                "override pretrain.optimizer.lr=1",
                "remove this line",
            ),
        ),
        {"model.json": '{"d_model": 8, "n_layers": 1, "n_heads": 2, "ffn_dim": 8, "max_seq_len": 4096}'},
    ),
    line(
        "unknown input",
        "inputs",
        "inputs.modell=x",
        "inputs.modell",
        "'modell'",
        "Did you mean 'model'?",
        "stage=sft",
    ),
    line(
        "unknown input",
        "inputs",
        "sft.inputs.x=y",
        "sft.inputs.x",
        "'inputs.x'",
        "model, shards",
        "stage=sft",
    ),
    line(
        "ambiguous input",
        "inputs",
        "inputs.model=X",
        "inputs.model",
        "several stages need a different model (sft from pretrain, grpo from sft",
        "sft.inputs.model=…",
        "pipeline=quickstart",
    ),
    line(
        "unknown key",
        "stage",
        "default_pipeline=quickstart",
        "default_pipeline",
        "no stage here (collect, curate, bpe, tokens, pretrain) has 'default_pipeline'",
        "",
    ),
    # --- lines ---
    line("sweep without -m", "optimizer", "optimizer.lr=1,2", "optimizer.lr", "'1,2' is a sweep", "add -m"),
    line("sweep without -m", "root", "seed=range(3)", "seed", "is a sweep", "add -m"),
    line(
        "sweep without -m", "optimizer", "optimizer.lr=interval(1,2)", "optimizer.lr", "is a sweep", "add -m"
    ),
    line("not an override", "root", "seed", "", "'seed' is not an override", "write key=value"),
    line("not an override", "data", "data.path=[a", "", "is not an override", "quote the value"),
    line(
        "no folder",
        "root",
        "paths.store=[/dev/null]",
        "paths.store",
        "/dev/null is no folder",
        "name a folder",
    ),
    line(
        "not a file",
        "data",
        "data.path=/dev/null",
        "collect.data.path",
        "neither a file nor",
        "give a file",
        "data=text_files",
    ),
    line(
        "not a file", "data", "data.path=", "collect.data.path", "is empty", "give a file", "data=text_files"
    ),
    line("not an override", "root", "paths.outputs=~/a", "", "is not an override", "\"paths.outputs='~/a'\""),
    line(
        "+ on a value",
        "optimizer",
        "+optimizer.lr=1",
        "pretrain.optimizer.lr",
        "has a value",
        "write optimizer.lr=1",
    ),
    line(
        "++ of a new key",
        "optimizer",
        "++optimizer.foo=1",
        "optimizer.foo",
        "no stage here",
        "'optimizer' has: betas",
    ),
    line(
        "~ on a value",
        "optimizer",
        "~optimizer.lr",
        "pretrain.optimizer.lr",
        "cannot be removed",
        "another value",
    ),
    # --- what a configuration may name ---
    line(
        "hydra's own",
        "hydra",
        "hydra.callbacks.x._target_=shutil.copyfile",
        "hydra.callbacks.x._target_",
        "cannot be set",
        "settable: hydra.run.dir",
    ),
    line("hydra's own", "hydra", "hydra/launcher=basic", "hydra/launcher", "is fixed", "launcher=OPTION"),
    line("hydra's own", "hydra", "hydra/sweeper=basic", "hydra/sweeper", "is fixed", "sweep=OPTION"),
    line("hydra's own", "hydra", "hydra/job_logging=none", "hydra/job_logging", "cannot be set", "settable:"),
    line(
        "_target_ outside",
        "optimizer",
        "optimizer={_target_: os.system}",
        "pretrain.optimizer._target_",
        "'os.system' may not be named here",
        "take one of the options",
    ),
    line(
        "_target_ outside",
        "optimizer",
        "optimizer._target_=os.system",
        "optimizer._target_",
        "no stage",
        "OPTION",
    ),
    line(
        "_target_ of another group",
        "optimizer",
        "optimizer={_target_: llmexp.train.config.CosineSpec}",
        "pretrain.optimizer._target_",
        "CosineSpec is no OptimizerSpec",
        "an option of this group",
    ),
    line(
        "_target_ that is not there",
        "optimizer",
        "optimizer={_target_: llmexp.train.config.LionSpec}",
        "pretrain.optimizer._target_",
        "does not exist",
        "name a spec",
    ),
    # --- a person's own files ---
    file(
        "unknown key",
        "optimizer/mine.yaml",
        "_target_: llmexp.train.config.AdamWSpec\nlearning_rate: 1\n",
        "optimizer=mine",
        "pretrain.optimizer.learning_rate",
        "no 'learning_rate' in AdamWSpec",
        "it has: betas, eps, lr",
    ),
    file(
        "YAML bool for a string",
        "data/mine.yaml",
        "_target_: llmexp.corpus.config.TextFilesSpec\npath: no\n",
        "data=mine",
        "collect.data.path",
        "false is not a string",
        "put the value in quotes",
    ),
    file(
        "YAML number for a string",
        "data/mine.yaml",
        "_target_: llmexp.corpus.config.TextFilesSpec\npath: 010\n",
        "data=mine",
        "collect.data.path",
        "is a number, not a string",
        "put the value in quotes",
    ),
    file(
        "hydra's own in a file",
        "model/mine.yaml",
        "# @package _global_\ndefaults: [/model/tiny]\nhydra: {callbacks: {x: {_target_: os.system}}}\n",
        "model=mine",
        "hydra.callbacks.x._target_",
        "cannot be set",
        "settable:",
    ),
    file(
        "bad line of an experiment",
        "experiment/mine.yaml",
        EXPERIMENT + "  - optimizer.lr=fast\n",
        "experiment=mine",
        "pretrain.optimizer.lr",
        "'fast' is not a number",
        "give a number",
    ),
    file(
        "experiment in an experiment",
        "experiment/mine.yaml",
        EXPERIMENT + "  - experiment=quickstart\n",
        "experiment=mine",
        "experiment.overrides",
        "cannot change the experiment",
        "remove experiment=quickstart",
    ),
    file(
        "cycle",
        "pipeline/mine.yaml",
        PIPELINE + "  a: {stage: curate, needs: {corpus: b}}\n  b: {stage: curate, needs: {corpus: a}}\n",
        "pipeline=mine",
        "pipeline.stages",
        "these stages need each other: a -> b -> a",
        "remove one of the needs",
    ),
    file(
        "need of an unknown stage",
        "pipeline/mine.yaml",
        PIPELINE + "  texts: {stage: collect}\n  b: {stage: curate, needs: {corpus: text}}\n",
        "pipeline=mine",
        "pipeline.stages.b.needs.corpus",
        "there is no stage 'text' in this pipeline",
        "Did you mean 'texts'?",
    ),
    file(
        "unknown need",
        "pipeline/mine.yaml",
        PIPELINE + "  a: {stage: collect}\n  b: {stage: curate, needs: {corpora: a}}\n",
        "pipeline=mine",
        "pipeline.stages.b.needs.corpora",
        "curate needs no 'corpora'",
        "Did you mean 'corpus'?",
    ),
    file(
        "need of the wrong kind",
        "pipeline/mine.yaml",
        PIPELINE + "  a: {stage: collect}\n  b: {stage: tokenize, needs: {corpus: a, tokenizer: a}}\n",
        "pipeline=mine",
        "b.needs.tokenizer",
        "is a tokenizer, and stage 'a' makes a corpus",
        "name another stage",
    ),
    file(
        "list for one need",
        "pipeline/mine.yaml",
        PIPELINE + "  a: {stage: collect}\n  b: {stage: curate, needs: {corpus: [a]}}\n",
        "pipeline=mine",
        "pipeline.stages.b.needs.corpus",
        "takes one corpus",
        "name one stage",
    ),
    file(
        "need that nothing makes",
        "pipeline/mine.yaml",
        PIPELINE + "  b: {stage: curate}\n",
        "pipeline=mine",
        "b.inputs.corpus",
        "needs a corpus, and nothing makes it",
        "give b.inputs.corpus=FINGERPRINT|RUN|PATH",
    ),
    file(
        "stage named like a group",
        "pipeline/mine.yaml",
        PIPELINE + "  optimizer: {stage: collect}\n",
        "pipeline=mine",
        "pipeline.stages.optimizer",
        "may not be named like the group",
        "another name",
    ),
    file(
        "unknown stage type",
        "pipeline/mine.yaml",
        PIPELINE + "  a: {stage: colect}\n",
        "pipeline=mine",
        "pipeline.stages.a.stage",
        "no stage type 'colect'",
        "Did you mean 'collect'?",
    ),
    file(
        "stage without a type",
        "pipeline/mine.yaml",
        PIPELINE + "  a: {needs: {}}\n",
        "pipeline=mine",
        "pipeline.stages.a.stage",
        "no stage type ''",
        "types: collect",
    ),
    file(
        "name with a dot",
        "pipeline/mine.yaml",
        PIPELINE + "  a.b: {stage: collect}\n",
        "pipeline=mine",
        "pipeline.stages.a.b",
        "cannot stand before a dot",
        "letters, digits",
    ),
    file(
        "pipeline without stages",
        "pipeline/mine.yaml",
        "_target_: llmexp.stage.config.PipelineSpec\n",
        "pipeline=mine",
        "pipeline.stages",
        "there is no stage",
        "NAME: {stage: TYPE}",
    ),
    file(
        "not YAML",
        "model/mine.yaml",
        "a: b: c\n",
        "model=mine",
        "",
        "this is not YAML: mapping values are not allowed here",
        "correct this line",
    ),
    file(
        "key twice",
        "optimizer/mine.yaml",
        "lr: 1\nlr: 2\n",
        "optimizer=mine",
        "",
        "duplicate key lr",
        "correct",
    ),
    Wrong(
        "default that is not there",
        "model",
        ("model=mine",),
        (Told("", "model/tinny", "a file", "correct the file that is named"),),
        {"model/mine.yaml": "defaults: [tinny]\n"},
    ),
    Wrong(
        "list for a mapping",
        "model",
        ("model=mine",),
        (Told("pretrain.model", "[1] is not a mapping with the fields", "override model=mine", "a mapping"),),
        {"model/mine.yaml": "- 1\n"},
    ),
    Wrong(
        "spec that is not named",
        "optimizer",
        ("optimizer=mine",),
        (Told("pretrain.optimizer.lr", "no 'lr' in OptimizerSpec", "optimizer/mine.yaml", ""),),
        {"optimizer/mine.yaml": "lr: 1\n"},
    ),
    # --- three at once ---
    three(
        "three",
        Told("pretrain.model", "no option 'tinny'", "override pretrain.model=tinny", "'tiny'"),
        Told("sft.optimizer.lr", "'x' is not a number", "override sft.optimizer.lr=x", "give a number"),
        Told("grpo.rollout.group_size", "1 is out of range", "override grpo.rollout.group_size=1", ">= 2"),
        words=(
            "experiment=quickstart",
            "pretrain.model=tinny",
            "sft.optimizer.lr=x",
            "grpo.rollout.group_size=1",
        ),
    ),
    three(
        "three",
        Told("", "'seed' is not an override", "override seed", "write key=value"),
        Told("optimizer", "no option 'adam'", "override optimizer=adam", "'adamw'"),
        Told("hydra.mode", "cannot be set", "override hydra.mode=RUN", "settable:"),
        words=("seed", "optimizer=adam", "hydra.mode=RUN"),
    ),
    three(
        "three",
        Told("pretrain.model.n_heads", "does not divide", "override model.n_heads=7", "use 6"),
        Told("pretrain.optimizer.betas", "holds 3", "override optimizer.betas=[0,0,0]", "give two"),
        Told("collect.data.path", "a value is missing", "conf/data/csv.yaml", "give data.path="),
        words=("model.n_heads=7", "optimizer.betas=[0,0,0]", "data=csv"),
    ),
    three(
        "three",
        Told("tracking.uri", "LLMEXP_NOT_SET", "override tracking.uri", "environment variable"),
        Told("pretrain.trainer.max_steps", "0 steps is out of range", "override trainer.max_steps=0", ">= 1"),
        Told("nobody.x", "'nobody' is neither a stage", "override nobody.x=1", "llmexp config"),
        words=("tracking.uri=${oc.env:LLMEXP_NOT_SET}", "trainer.max_steps=0", "nobody.x=1"),
    ),
    three(
        "three",
        Told("pretrain.optimizer.lr", "is not a number", "optimizer/mine.yaml", "give a number"),
        Told("pretrain.optimizer.foo", "no 'foo' in AdamWSpec", "optimizer/mine.yaml", "it has:"),
        Told("pretrain.optimizer.eps", "out of range", "optimizer/mine.yaml", "> 0"),
        words=("optimizer=mine",),
        files={"optimizer/mine.yaml": "_target_: llmexp.train.config.AdamWSpec\nlr: x\nfoo: 1\neps: -1\n"},
    ),
    three(
        "three",
        Told("seed", "is a sweep", "experiment/mine.yaml", "add -m"),
        Told("pretrain.optimizer.lr", "'fast' is not", "experiment/mine.yaml", "give a number"),
        Told("loader.lenght", "no stage here", "experiment/mine.yaml", "'loader' has"),
        words=("experiment=mine",),
        files={
            "experiment/mine.yaml": EXPERIMENT + "  - seed=1,2\n  - optimizer.lr=fast\n  - loader.lenght=3\n"
        },
    ),
    three(
        "three",
        Told("pipeline.stages.a.stage", "no stage type 'x'", "pipeline/mine.yaml", "types:"),
        Told("pipeline.stages.b.needs.corpus", "no stage 'c'", "pipeline/mine.yaml", "stages: a, b"),
        Told("tracking", "no option 'mlflw'", "override tracking=mlflw", "'mlflow'"),
        words=("pipeline=mine", "tracking=mlflw"),
        files={
            "pipeline/mine.yaml": PIPELINE + "  a: {stage: x}\n  b: {stage: curate, needs: {corpus: c}}\n"
        },
    ),
]

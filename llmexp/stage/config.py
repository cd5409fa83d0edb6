"""Specs of the root, of pipelines and of every stage. A stage's fields are the groups that it reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from llmexp.config.spec import Mistake, Spec, setting
from llmexp.corpus.config import DataSpec
from llmexp.corpus.curation.config import CurationSpec
from llmexp.data.config import LoaderSpec
from llmexp.evaluate.config import EvaluationSpec
from llmexp.export.config import ExportSpec
from llmexp.launch.config import LauncherSpec
from llmexp.model.config import ModelSpec
from llmexp.objective.config import GRPOSpec
from llmexp.parallel.config import ParallelSpec
from llmexp.plan.config import HardwareSpec
from llmexp.rollout.config import RewardSpec, RolloutSpec
from llmexp.stage.heads import Head, Heads
from llmexp.store.config import PathsSpec
from llmexp.sweep.config import SweepSpec
from llmexp.tokenizer.config import TokenizerSpec
from llmexp.track.config import TrackingSpec
from llmexp.train.config import OptimizerSpec, SchedulerSpec, TrainerSpec, check_batch, check_budget


@dataclass(frozen=True)
class Need:
    """One input of a stage: an artifact of a kind."""

    kind: str
    many: bool = False
    optional: bool = False

    def accepts(self, made: str) -> bool:
        """Whether an artifact of kind ``made`` can stand here: a model brings its tokenizer along."""
        return made == self.kind or (self.kind == "tokenizer" and made == "model")


@dataclass(kw_only=True)
class StageSpec(Spec):
    """One step of the life cycle: takes artifacts, makes one artifact."""

    needs: ClassVar[dict[str, Need]] = {}
    makes: ClassVar[str] = ""
    """Kind of the artifact."""
    version: ClassVar[int] = 1
    """Raised whenever the same composition gives another artifact than before."""
    runs: ClassVar[str] = ""
    """``module:function`` that does the work: ``run(spec, context) -> summary``."""
    trains: ClassVar[bool] = False
    """Whether it may run on several ranks and goes on from checkpoints."""

    inputs: dict[str, str] = setting(
        "Given inputs: need to fingerprint, run folder or path; several are separated by commas.",
        default={},
        result=False,
    )

    def check(self) -> Iterator[Mistake]:
        """Only what the stage needs can be given."""
        for need in self.inputs:
            if need not in self.needs:
                yield Mistake(
                    f"inputs.{need}", f"this stage needs no '{need}'", f"it needs: {', '.join(self.needs)}"
                )

    def check_needs(self, needs: Heads) -> Iterator[Mistake]:
        """Constraints against what is known of the inputs, made by stages or given."""
        del needs
        yield from ()

    def head(self, needs: Heads) -> Head:
        """What is known of the artifact before it is made."""
        del needs
        return Head()


@dataclass(kw_only=True)
class Collect(StageSpec):
    """Reads documents, conversations or prompts from a source and splits them into train and held-out."""

    version: ClassVar[int] = 3
    makes: ClassVar[str] = "corpus"
    runs: ClassVar[str] = "llmexp.stage.collect:run"
    data: DataSpec = setting("Where text comes from.")

    def head(self, needs: Heads) -> Head:
        """Whether it holds conversations, and holds any out."""
        del needs
        return Head(chat=self.data.gives_chats(), held_out=self.data.holds_out())


@dataclass(kw_only=True)
class Curate(StageSpec):
    """Cleans, filters and deduplicates a corpus; what goes is kept with the reason."""

    needs: ClassVar[dict[str, Need]] = {"corpus": Need("corpus")}
    makes: ClassVar[str] = "corpus"
    runs: ClassVar[str] = "llmexp.stage.curate:run"
    curation: CurationSpec = setting("The ordered steps.")
    workers: int | None = setting("Processes; null is one a core.", default=None, ge=1, result=False)

    def head(self, needs: Heads) -> Head:
        """Records stay of their kind."""
        return _one(needs, "corpus")


@dataclass(kw_only=True)
class TrainTokenizer(StageSpec):
    """Trains a tokenizer on the train split, or takes an existing one."""

    needs: ClassVar[dict[str, Need]] = {"corpus": Need("corpus", optional=True)}
    makes: ClassVar[str] = "tokenizer"
    runs: ClassVar[str] = "llmexp.stage.train_tokenizer:run"
    tokenizer: TokenizerSpec = setting("Kind and size of the tokenizer.")

    def head(self, needs: Heads) -> Head:
        """The size that is asked for, and whether there will be a chat template."""
        del needs
        return Head(
            vocab_size=getattr(self.tokenizer, "vocab_size", None),
            chat_template=self.tokenizer.has_chat_template(),
        )


@dataclass(kw_only=True)
class Tokenize(StageSpec):
    """Turns documents into memory-mapped token shards; conversations also get a loss mask."""

    needs: ClassVar[dict[str, Need]] = {"corpus": Need("corpus"), "tokenizer": Need("tokenizer")}
    version: ClassVar[int] = 2
    makes: ClassVar[str] = "shards"
    runs: ClassVar[str] = "llmexp.stage.tokenize:run"
    max_unusable: float = setting(
        "Share of a split's records that may be left out, such as chats that the template refuses.",
        default=0.05,
        ge=0,
        le=1,
    )
    workers: int | None = setting(
        "Processes, or threads for little text; null is one a core.", default=None, ge=1, result=False
    )

    def check_needs(self, needs: Heads) -> Iterator[Mistake]:
        """Conversations are written by the tokenizer's chat template."""
        if _one(needs, "corpus").chat:
            yield from _template_is_there("tokenizer", needs)

    def head(self, needs: Heads) -> Head:
        """Shards hold what the corpus holds, in the tokenizer's ids."""
        corpus = _one(needs, "corpus")
        return Head(
            vocab_size=_one(needs, "tokenizer").vocab_size, chat=corpus.chat, held_out=corpus.held_out
        )


@dataclass(kw_only=True)
class TrainingStage(StageSpec, ABC):
    """What every training stage has."""

    makes: ClassVar[str] = "model"
    trains: ClassVar[bool] = True
    seed: int = setting("Seed of weights, data order, dropout and rollouts.", default=0, ge=0)
    parallel: ParallelSpec = setting("The mesh.")
    optimizer: OptimizerSpec = setting("The optimizer.")
    scheduler: SchedulerSpec = setting("Learning rate over steps.")
    trainer: TrainerSpec = setting("The loop.")

    @property
    @abstractmethod
    def sample_length(self) -> int:
        """Tokens of one sequence of a batch."""

    def check(self) -> Iterator[Mistake]:
        """The batch can be shared by the ranks, and the schedule fits into the budget."""
        yield from super().check()
        yield from check_batch(self.trainer, self.parallel)
        yield from check_budget(self.trainer, self.scheduler, self.sample_length)

    def check_needs(self, needs: Heads) -> Iterator[Mistake]:
        """What ends training early is measured on something."""
        data = needs.get("shards", ()) + needs.get("prompts", ())
        if self.trainer.stop_when is not None and data and all(head.held_out is False for head in data):
            yield Mistake(
                "trainer.stop_when",
                f"is {self.trainer.stop_when.value}, and nothing is held out to measure it on",
                "hold some of the data out (data.heldout=0.05), or set trainer.stop_when=null",
            )


@dataclass(kw_only=True)
class Pretrain(TrainingStage):
    """Trains a decoder on next-token prediction."""

    version: ClassVar[int] = 3
    needs: ClassVar[dict[str, Need]] = {"shards": Need("shards", many=True), "tokenizer": Need("tokenizer")}
    runs: ClassVar[str] = "llmexp.stage.pretrain:run"
    model: ModelSpec = setting("The decoder.")
    loader: LoaderSpec = setting("A view of the shards.")

    @property
    def sample_length(self) -> int:
        """Tokens of one sequence."""
        return self.loader.seq_len

    def check(self) -> Iterator[Mistake]:
        """The context fits the positions."""
        yield from super().check()
        if self.loader.seq_len > self.model.max_seq_len:
            yield Mistake(
                "loader.seq_len",
                f"{self.loader.seq_len} is more than model.max_seq_len={self.model.max_seq_len}",
                "lower loader.seq_len or raise model.max_seq_len",
            )

    def check_needs(self, needs: Heads) -> Iterator[Mistake]:
        """The tokenizer's ids lie within the model's vocabulary, and each input of shards has its weight."""
        yield from super().check_needs(needs)
        yield from _weights_fit(self.loader, needs)
        wanted = _one(needs, "tokenizer").vocab_size
        if wanted is not None and self.model.vocab_size is not None and self.model.vocab_size < wanted:
            yield Mistake(
                "model.vocab_size",
                f"{self.model.vocab_size} is less than tokenizer.vocab_size={wanted}",
                "set model.vocab_size=null to take the tokenizer's, or make it at least as large",
            )

    def head(self, needs: Heads) -> Head:
        """The decoder's sizes, with the tokenizer that it brings along."""
        tokenizer = _one(needs, "tokenizer")
        return Head(
            vocab_size=self.model.vocab_size or tokenizer.vocab_size,
            max_seq_len=self.model.max_seq_len,
            chat_template=tokenizer.chat_template,
        )


@dataclass(kw_only=True)
class Sft(TrainingStage):
    """Trains on conversations, loss on the assistant's turns only."""

    version: ClassVar[int] = 3
    needs: ClassVar[dict[str, Need]] = {"model": Need("model"), "shards": Need("shards", many=True)}
    runs: ClassVar[str] = "llmexp.stage.sft:run"
    loader: LoaderSpec = setting("A view of the shards.")

    @property
    def sample_length(self) -> int:
        """Tokens of one sequence."""
        return self.loader.seq_len

    def check_needs(self, needs: Heads) -> Iterator[Mistake]:
        """Conversations are there to train on, and fit the model's context and vocabulary."""
        yield from super().check_needs(needs)
        yield from _weights_fit(self.loader, needs)
        model = _one(needs, "model")
        if model.max_seq_len is not None and self.loader.seq_len > model.max_seq_len:
            yield Mistake(
                "loader.seq_len",
                f"{self.loader.seq_len} is more than the model's max_seq_len={model.max_seq_len}",
                "lower loader.seq_len",
            )
        for shards in needs["shards"]:
            if shards.chat is False:
                yield _no_chats("shards", "no token of it is an assistant's")
            if shards.vocab_size is not None and shards.vocab_size > (model.vocab_size or shards.vocab_size):
                yield Mistake(
                    "inputs.shards",
                    f"was written with a vocabulary of {shards.vocab_size}, "
                    f"and the model has {model.vocab_size}",
                    "tokenize the conversations with the model's own tokenizer",
                )

    def head(self, needs: Heads) -> Head:
        """The model stays what it is."""
        return _one(needs, "model")


@dataclass(kw_only=True)
class Grpo(TrainingStage):
    """Reinforcement learning with rules: group-relative policy optimisation."""

    version: ClassVar[int] = 2
    needs: ClassVar[dict[str, Need]] = {"model": Need("model"), "prompts": Need("corpus")}
    runs: ClassVar[str] = "llmexp.stage.grpo:run"
    rollout: RolloutSpec = setting("How completions are sampled.")
    reward: RewardSpec = setting("What scores a completion.")
    objective: GRPOSpec = setting("The clipped objective.")

    @property
    def sample_length(self) -> int:
        """Tokens of one completion, at most."""
        return self.rollout.max_new_tokens

    def check(self) -> Iterator[Mistake]:
        """A batch is whole groups on every rank."""
        yield from super().check()
        ranks = self.parallel.size()
        yield from (m.under("rollout") for m in self.rollout.check_batch(self.trainer.global_batch, ranks))

    def check_needs(self, needs: Heads) -> Iterator[Mistake]:
        """Prompts hold messages, and the model's tokenizer can write them."""
        yield from super().check_needs(needs)
        if _one(needs, "prompts").chat is False:
            yield _no_chats("prompts", "there is nothing to answer")
        yield from _template_is_there("model", needs)

    def head(self, needs: Heads) -> Head:
        """The model stays what it is."""
        return _one(needs, "model")


@dataclass(kw_only=True)
class Evaluate(StageSpec):
    """Measures models on held-out data, side by side in one table."""

    needs: ClassVar[dict[str, Need]] = {
        "models": Need("model", many=True),
        "shards": Need("shards", optional=True),
        "chats": Need("shards", optional=True),
        "prompts": Need("corpus", optional=True),
    }
    makes: ClassVar[str] = "report"
    runs: ClassVar[str] = "llmexp.stage.evaluate:run"
    seed: int = setting("Seed of the sample generations.", default=0, ge=0)
    evaluation: EvaluationSpec = setting("What is measured.")


@dataclass(kw_only=True)
class Export(StageSpec):
    """Writes a model in a format that other tools open."""

    version: ClassVar[int] = 2
    needs: ClassVar[dict[str, Need]] = {"model": Need("model"), "report": Need("report", optional=True)}
    makes: ClassVar[str] = "export"
    runs: ClassVar[str] = "llmexp.stage.export:run"
    export: ExportSpec = setting("The format.")


def _one(needs: Heads, need: str) -> Head:
    """What is known of the one artifact of a need; nothing where it is missing."""
    return next(iter(needs.get(need, ())), Head())


def _weights_fit(loader: LoaderSpec, needs: Heads) -> Iterator[Mistake]:
    """A mixture has a weight for each input of shards."""
    given = len(needs.get("shards", ()))
    if loader.mixture and len(loader.mixture) != given:
        yield Mistake(
            "loader.mixture",
            f"has {len(loader.mixture)} weights for {given} inputs of shards",
            "give one weight for each input, in their order, or none",
        )


def _template_is_there(need: str, needs: Heads) -> Iterator[Mistake]:
    """What brings the tokenizer along must have a chat template."""
    if any(head.chat_template is False for head in needs.get(need, ())):
        yield Mistake(
            f"inputs.{need}",
            "its tokenizer has no chat template, and conversations are written by one",
            "set tokenizer.chat_template=FILE where the tokenizer is made (stage=train_tokenizer)",
        )


def _no_chats(need: str, why: str) -> Mistake:
    """Plain text where conversations are needed."""
    return Mistake(
        f"inputs.{need}",
        f"is plain text and holds no conversations: {why}",
        "take data=chat_jsonl, data=docstring_chats, or data=huggingface with data.messages_field",
    )


@dataclass(kw_only=True)
class EntrySpec(Spec):
    """One stage of a pipeline."""

    stage: str = setting("Stage type: an option of conf/stage.")
    needs: dict[str, Any] = setting(
        "Need to the name of the stage that makes it (or a list of names).", default={}
    )
    overrides: list[str] = setting("Override lines of this stage, as on the command line.", default=[])


@dataclass(kw_only=True)
class PipelineSpec(Spec):
    """A named graph of stages."""

    stages: dict[str, EntrySpec] = setting("Stages by name.")


@dataclass(kw_only=True)
class ExperimentSpec(Spec):
    """What people run and share: override lines, applied before those of the command line."""

    overrides: list[str] = setting("Override lines, as on the command line.", default=[])


@dataclass(kw_only=True)
class RootSpec(Spec):
    """The root of the tree: what holds for a whole pipeline."""

    stage: str = setting(
        "Stage to run when no pipeline is named; its default pipeline makes what it needs.",
        default="pretrain",
    )
    experiment: ExperimentSpec | None = setting("Recipe: an option of conf/experiment.", default=None)
    pipeline: PipelineSpec | None = setting("Graph of stages: an option of conf/pipeline.", default=None)
    launcher: LauncherSpec = setting("Where stages run.")
    tracking: TrackingSpec = setting("What is recorded, and where it is delivered.")
    hardware: HardwareSpec = setting("The device that plans and MFU are computed for.")
    paths: PathsSpec = setting("Folders.")
    sweep: SweepSpec = setting("What -m does.")
    stages: dict[str, StageSpec] = setting("The composed stages; filled in by the composition.", default={})

"""What Lightning would do by itself and must not: signals, SLURM, Ctrl-C."""

import signal

import pytest
import tiny_training as tiny


class Asking(tiny.Sequences):
    """Calls ``act`` when step 3 is asked for."""

    def __init__(self, act):
        super().__init__()
        self._act = act

    def step(self, step):
        if step == 3:
            self._act()
        return super().step(step)


def test_ctrl_c_comes_out_as_itself_and_its_handler_stays(tmp_path):
    def press():
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        tiny.train(tmp_path, source=Asking(press))
    assert signal.getsignal(signal.SIGINT) is before


def test_handlers_of_others_stay_in_place_while_training(tmp_path):
    signals = [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT]
    before = [signal.getsignal(number) for number in signals]
    during = []
    tiny.train(tmp_path, source=Asking(lambda: during.extend(signal.getsignal(n) for n in signals)))
    assert during == before


def test_inside_a_slurm_job_nothing_is_different(tmp_path, monkeypatch):
    expected = tiny.train(tmp_path / "outside")
    for name, value in {
        "SLURM_NTASKS": "4",
        "SLURM_JOB_ID": "7",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
    }.items():
        monkeypatch.setenv(name, value)
    assert tiny.train(tmp_path / "inside").weights_hash == expected.weights_hash


def test_an_error_of_the_source_passes_through_with_its_type(tmp_path):
    def fail():
        raise LookupError("record 7 of a.jsonl")

    with pytest.raises(LookupError, match="record 7"):
        tiny.train(tmp_path, source=Asking(fail))


def test_nothing_of_lightning_s_is_left_in_the_run_folder(tmp_path):
    tiny.train(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoints"]

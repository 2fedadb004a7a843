"""
The task.
"""

from stepscope_trainer.model import Characters
from stepscope_trainer.task import Arithmetic


def test_a_problem_is_a_function_of_seed_and_number() -> None:
    """
    Two processes with the same seed ask the same; another seed asks something else.
    """
    one, same, other = (Arithmetic(Characters(), seed=seed) for seed in (3, 3, 4))

    assert [one.problem(i) for i in range(50)] == [same.problem(i) for i in range(50)]
    assert [one.problem(i) for i in range(50)] != [other.problem(i) for i in range(50)]


def test_problems_are_written_with_two_digits() -> None:
    """
    ``07+05=`` is answered by ``12``.
    """
    task = Arithmetic(Characters(), seed=0)

    for number in range(200):
        problem = task.problem(number)
        text = Characters().decode(problem.prompt)
        assert f"{int(text[:2]) + int(text[3:5]):02d}" == problem.answer
        assert 6 == len(text)


def test_what_is_held_out_is_never_asked() -> None:
    """
    Neither as a problem nor in a demonstration.
    """
    task = Arithmetic(Characters(), seed=0)
    held_out = {problem.prompt for problem in task.validation}
    asked = {task.problem(i).prompt for i in range(2000)}
    shown = {task.demonstration(i, random_share=0.5)[0] for i in range(2000)}

    assert 20 == len(held_out)
    assert set() == held_out & (asked | shown)
    assert 80 == len(asked)


def test_only_the_exact_answer_is_rewarded() -> None:
    """
    The answer and its end earn 1; anything more, less or other earns 0.
    """
    codec = Characters()
    task = Arithmetic(codec, seed=0)
    problem = task.problem(0)
    right = codec.encode(problem.answer)

    assert 1.0 == task.reward(problem, [*right, codec.end])
    assert 0.0 == task.reward(problem, right)
    assert 0.0 == task.reward(problem, [*right, right[0], codec.end])
    assert 0.0 == task.reward(problem, [codec.end])
    assert 0.0 == task.reward(problem, [])
    assert 0.0 == task.reward(problem, [*reversed(right), codec.end]) or right[0] == right[1]


def test_half_of_the_demonstrations_are_random() -> None:
    """
    About half of the answers shown are a random number, none when no share is.
    """
    codec = Characters()
    task = Arithmetic(codec, seed=0)

    def right(share: float) -> float:
        shown = [task.demonstration(i, random_share=share) for i in range(1000)]
        sums = [(codec.decode(prompt), codec.decode(answer[:-1])) for prompt, answer in shown]
        return sum(int(text[:2]) + int(text[3:5]) == int(answer) for text, answer in sums) / len(sums)

    assert 1.0 == right(0.0)
    assert 0.45 < right(0.5) < 0.58

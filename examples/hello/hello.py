from reactive_kafka import App

app = App("reactive-kafka.toml")


@app.incoming("greetings")
async def greet(name: str) -> None:
    print(f"Hello, {name}!", flush=True)


if __name__ == "__main__":
    app.run()

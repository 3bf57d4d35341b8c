-- Where clickstream.py writes its counts, and how far it came.

CREATE TABLE IF NOT EXISTS hourly (
    hour    TIMESTAMPTZ      NOT NULL,
    page    TEXT             NOT NULL,
    clicks  BIGINT           NOT NULL,
    seconds DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (hour, page)
);

CREATE TABLE IF NOT EXISTS progress (
    topic     TEXT,
    partition INT,
    reached   BIGINT NOT NULL,
    PRIMARY KEY (topic, partition)
);
